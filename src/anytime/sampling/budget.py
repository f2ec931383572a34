"""When a request stops: at a number of codes, a deadline or an interruption, whichever comes first."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from anytime.core.errors import UserError

MAX_WITHIN = 1e6
"""Seconds: a longer deadline is a mistake in units."""


class DeadlineWarning(UserWarning):
    """A deadline is shorter than one step and one decode, or the engine had to warm up before the deadline's clock began."""


class MemoryWarning(UserWarning):
    """A microbatch does not fit into memory and is split."""


def code_count(length: int, codes: int | None = None, fraction: float | None = None) -> int:
    """Return the number of codes requested, all of them by default; `fraction` is max(1, round(fraction · length)).

    >>> code_count(16), code_count(16, codes=4), code_count(16, fraction=0.25)
    (16, 4, 4)
    """
    if codes is not None and fraction is not None:
        raise UserError("`codes` and `fraction` both set the length; give one of them")
    if fraction is not None:
        if not 0 < fraction <= 1:
            raise UserError(f"`fraction` must be above 0 and at most 1, not {fraction}")
        return max(1, round(fraction * length))
    if codes is None:
        return length
    if not 1 <= codes <= length:
        raise UserError(f"`codes` must be between 1 and {length}, the model's length, not {codes}")
    return codes


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a request may use. At least one code is always sampled."""

    codes: int
    """Maximum number of codes."""
    within: float | None = None
    """Seconds from the call to the finished, decoded sample."""
    stop: threading.Event | None = None
    """Stop as soon as this event is set, from any thread."""

    def __post_init__(self) -> None:
        if self.codes < 1:
            raise UserError(f"`codes` must be at least 1, not {self.codes}")
        if self.within is not None and not 0 < self.within <= MAX_WITHIN:  # NaN is refused too
            raise UserError(f"`within` must be above 0 and at most {MAX_WITHIN:.0f} seconds, not {self.within}")


WINDOW = 128  # measurements kept: enough to include an ordinary stall, few enough to follow a change of load
QUANTILE = 0.985  # of the measurements, as the estimate of the next one: ignores one outlier in a full window


@dataclass
class LatencyEstimate:
    """How long a step and a decode take, measured as they run. There is one for each engine, device and batch size."""

    steps: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    decodes: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def step(self) -> float:
        """Seconds expected for the next step: a high quantile of all, and at least the faster of the last two.

        Steps get slower along the sequence. A single slow step is a stall and need not happen again.
        """
        return max(_high_quantile(self.steps), min(islice(reversed(self.steps), 2), default=0.0))

    @property
    def decode(self) -> float:
        """Seconds expected for the next decode."""
        return _high_quantile(self.decodes)


def _high_quantile(times: deque[float]) -> float:
    """Return a high quantile of the measurements, 0 if there are none.

    >>> _high_quantile(deque([1.0, 1.0, 3.0])), _high_quantile(deque())
    (3.0, 0.0)
    """
    if not times:
        return 0.0
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, math.floor(QUANTILE * len(ordered)))]


def should_continue(budget: Budget, latency: LatencyEstimate, count: int, elapsed: float) -> bool:
    """Return whether another step fits into the budget: the deadline rule.

    A step starts only if it and the decode are expected to end in time. So a request is late by at most what that step and
    that decode take beyond their estimates.
    """
    if count >= budget.codes:
        return False
    if count < 1:
        return True
    if budget.stop is not None and budget.stop.is_set():
        return False
    return budget.within is None or elapsed + latency.step + latency.decode <= budget.within
