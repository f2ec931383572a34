"""Latency estimates: how long the next step and decode will take, beside other programs that use the machine too.

Without disturbance a step always takes about the same time. Other programs delay it: on a busy CPU a thread runs for some
milliseconds, then waits for as long. So the estimate has two parts. What a step and a decode usually take changes slowly.
The delay to expect for that much work is read off the last few steps, so that it follows the load in both directions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from anytime.sampling.threads import ThreadChoice

USUAL_WINDOW = 128
"""Measurements that the usual time is read from."""
USUAL_QUANTILE = 0.1
"""Quantile of the measurements that counts as usual: a low one, since delays only make them longer."""
DELAY_WINDOW = 24
"""Measurements that the expected delay is read from: the steps of one or two requests."""


class UsualTime:
    """A low quantile of the last measurements."""

    def __init__(self) -> None:
        self._times = deque[float]()
        self._ordered = list[float]()

    def __len__(self) -> int:
        return len(self._times)

    def add(self, seconds: float) -> None:
        """Add a measurement and forget the oldest."""
        if len(self._times) == USUAL_WINDOW:
            del self._ordered[bisect_left(self._ordered, self._times.popleft())]
        self._times.append(seconds)
        insort(self._ordered, seconds)

    @property
    def seconds(self) -> float:
        """The usual time, 0 without a measurement."""
        return self._ordered[int(USUAL_QUANTILE * len(self._ordered))] if self._ordered else 0.0

    @property
    def median(self) -> float:
        """The median of the measurements, delays included; 0 without one."""
        return self._ordered[len(self._ordered) // 2] if self._ordered else 0.0


class Delays:
    """How much longer than usual the last pieces of work took.

    >>> delays = Delays()
    >>> for took in [1.0, 1.0, 5.0] * 8:  # work of a second, delayed by four every third time
    ...     delays.add(1.0, took)
    >>> delays.expected(1.0), delays.expected(6.0)
    (4.0, 8.0)
    """

    def __init__(self) -> None:
        self._pieces: deque[tuple[float, float]] = deque(maxlen=DELAY_WINDOW)  # usual seconds, seconds of delay

    def add(self, usual: float, took: float) -> None:
        """Add a piece of work."""
        self._pieces.append((usual, max(0.0, took - usual)))

    def expected(self, work: float) -> float:
        """Return the delay to expect for that much work: the largest that recent work of this length had.

        The single longest delay is left out if it is longer than its work: it may be a stall that does not happen again.
        """
        if not self._pieces:
            return 0.0
        longest = max(delay for _, delay in self._pieces)
        worst = usual_sum = delay_sum = 0.0
        stretch: deque[tuple[float, float]] = deque()
        for usual, delay in self._pieces:
            if delay == longest > usual:
                delay, longest = 0.0, -1.0
            stretch.append((usual, delay))
            usual_sum, delay_sum = usual_sum + usual, delay_sum + delay
            while len(stretch) > 1 and usual_sum - stretch[0][0] >= work:
                first, first_delay = stretch.popleft()
                usual_sum, delay_sum = usual_sum - first, delay_sum - first_delay
            worst = max(worst, delay_sum)
        return worst

    def line(self) -> tuple[float, float]:
        """Return the delay of any work as a line: what may happen once, and a fraction of the work.

        >>> delays = Delays()
        >>> for took in [1.0, 3.0] * 12:
        ...     delays.add(1.0, took)
        >>> delays.line()
        (2.0, 1.0)
        """
        usual, delays = (list(column) for column in zip(*self._pieces, strict=True)) if self._pieces else ([1.0], [0.0])
        longest = sorted(delays)[-2:]
        return longest[0] if len(delays) > 1 else 0.0, sum(delays) / sum(usual)


class LatencyEstimate:
    """How long a step and a decode take, measured as they run. There is one for each engine, device and batch size."""

    def __init__(self, threads: ThreadChoice | None = None) -> None:
        self.steps, self.decodes, self.delays = UsualTime(), UsualTime(), Delays()
        self.threads = threads  # None if the engine chooses them, or has none

    def add_step(self, seconds: float) -> bool:
        """Add the time of a step; return whether the number of threads should change."""
        self.steps.add(seconds)
        self.delays.add(self.steps.seconds, seconds)
        changed = self.threads is not None and self.threads.add_step(seconds)
        if changed:
            self.steps, self.decodes = UsualTime(), UsualTime()
        return changed

    def add_decode(self, seconds: float) -> None:
        """Add the time of a decode."""
        self.decodes.add(seconds)
        self.delays.add(self.decodes.seconds, seconds)

    @property
    def step_and_decode(self) -> float:
        """Seconds to expect for one more step and the decode."""
        work = self.steps.seconds + self.decodes.seconds
        return work + self.delays.expected(work)
