"""What a step and a decode cost by number of rows: calibrated once, then corrected by every measurement."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

from anytime.sampling.latency import Delays, UsualTime

EFFICIENT = 1.1
"""A batch is large enough if a row costs at most this many times what it costs in the best one."""
SLOW_AVERAGE = 0.01
"""Weight of one measurement in the slow average of delays."""
STALE_SECONDS = 0.5
"""Age at which delays are forgotten: if everything is refused because of them, nothing new is measured."""
MAX_CHUNK_SECONDS = 0.006
"""Longest decode without looking at what else is due."""


class Curve:
    """Seconds by number of rows, linear between measurements.

    >>> curve = Curve({1: 1.0, 3: 2.0})
    >>> curve(1), curve(2), curve(3), curve(9)
    (1.0, 1.5, 2.0, 6.0)
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self.rows = sorted(seconds)
        self.seconds = [seconds[rows] for rows in self.rows]

    def __call__(self, rows: int) -> float:
        if rows <= self.rows[0]:
            return self.seconds[0]
        if rows >= self.rows[-1]:
            return self.seconds[-1] * rows / self.rows[-1]
        after = bisect_left(self.rows, rows)
        low, high = self.rows[after - 1], self.rows[after]
        share = (rows - low) / (high - low)
        return self.seconds[after - 1] + share * (self.seconds[after] - self.seconds[after - 1])

    def efficient_rows(self) -> int:
        """Return the smallest number of rows at which a row costs little more than in the best batch."""
        each = [seconds / rows for rows, seconds in zip(self.rows, self.seconds, strict=True)]
        return next(rows for rows, cost in zip(self.rows, each, strict=True) if cost <= EFFICIENT * min(each))


class CostModel:
    """Expected seconds of steps and decodes of one model on this machine, under its present load."""

    def __init__(
        self,
        step: Curve,
        decode: Curve,
        join: Curve | None = None,
        *,
        samples_at_join: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step, self._decode, self._clock = step, decode, clock
        self._join, self.samples_at_join = join or Curve({1: 0.0}), samples_at_join
        self._slowdown, self._delays, self._measured_at = UsualTime(), Delays(), 0.0
        self._line, self._slow_usual, self._slow_delay = (0.0, 0.0), 0.0, 0.0  # slow averages of a piece of work and its delay
        self.batch = step.efficient_rows()
        """Rows that are worth stepping together."""
        short = [rows for rows in decode.rows if decode(rows) <= MAX_CHUNK_SECONDS]
        self.chunk = max(short, default=decode.rows[0])
        """Rows decoded at once."""

    def step(self, rows: int) -> float:
        """Return the seconds of one step; none for no row."""
        return self._step(rows) * self.slowdown if rows else 0.0

    def join(self, rows: int) -> float:
        """Return the seconds to give a new request slots."""
        return self._join(rows) * self.slowdown

    def decode(self, rows: int) -> float:
        """Return the seconds of decoding, chunk by chunk."""
        full, rest = divmod(rows, self.chunk)
        return (full * self._decode(self.chunk) + (self._decode(rest) if rest else 0.0)) * self.slowdown

    @property
    def slowdown(self) -> float:
        """The present speed of the machine: 1 as calibrated, 2 for half of it."""
        return self._slowdown.seconds if len(self._slowdown) else 1.0

    def add_step(self, rows: int, took: float, joined: Iterable[int] = ()) -> None:
        """Add a measured step of these rows, if any, with the rows of each request that joined before it."""
        self._add((self._step(rows) if rows else 0.0) + sum(map(self._join, joined)), took)

    def add_decode(self, rows: int, took: float) -> None:
        """Add a measured decode of at most one chunk."""
        self._add(self._decode(rows), took)

    def _add(self, calibrated: float, took: float) -> None:
        self._slowdown.add(took / calibrated)
        if self._is_stale:
            self._delays, self._slow_usual, self._slow_delay = Delays(), 0.0, 0.0
        usual = calibrated * self.slowdown
        self._delays.add(usual, took)
        self._slow_usual += SLOW_AVERAGE * (usual - self._slow_usual)
        self._slow_delay += SLOW_AVERAGE * (max(0.0, took - usual) - self._slow_delay)
        self._line, self._measured_at = self._delays.line(), self._clock()

    @property
    def _is_stale(self) -> bool:
        return self._clock() - self._measured_at > STALE_SECONDS

    @property
    def delay_line(self) -> tuple[float, float]:
        """The delay to expect for any work: what may happen once, and a fraction of the work."""
        return (0.0, 0.0) if self._is_stale else self._line

    def mean_delay(self, work: float) -> float:
        """Return the delay that this much work has on average.

        A slow average: jobs that are refused come again, and would be accepted whenever a fast one is low.
        """
        return 0.0 if self._is_stale or not self._slow_usual else work * self._slow_delay / self._slow_usual

    def delay(self, work: float) -> float:
        """Return the delay to expect for that much work."""
        once, fraction = self.delay_line
        return once + fraction * work
