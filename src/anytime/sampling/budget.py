"""When a request stops: at a number of codes, a deadline or an interruption, whichever comes first."""

from __future__ import annotations

import operator
import threading
from dataclasses import dataclass
from typing import SupportsIndex

from anytime.core.errors import UserError, warn
from anytime.core.times import to_seconds
from anytime.sampling.latency import LatencyEstimate

MAX_WITHIN = 1e6
"""Seconds: a longer deadline is a mistake in units."""
WARM_UP_TOLERANCE = 0.05
"""Fraction of a deadline that a warm-up may take without a warning."""


class DeadlineWarning(UserWarning):
    """A deadline is too short for one code of every row, or the engine had to warm up before the deadline's clock began."""


class MemoryWarning(UserWarning):
    """A microbatch does not fit into memory and is split."""


def whole_number(value: SupportsIndex, name: str) -> int:
    """Return a whole number of Python, numpy or torch as an int; refuse anything else.

    >>> whole_number(3, "`n`")
    3
    """
    try:
        return operator.index(value)
    except TypeError:
        raise UserError(f"{name} must be a whole number, not {value!r}") from None


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
    codes = whole_number(codes, "`codes`")
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
        object.__setattr__(self, "within", to_seconds(self.within, "`within`"))  # numbers of NumPy and torch too
        if self.within is not None and not 0 < self.within <= MAX_WITHIN:  # NaN is refused too
            raise UserError(f"`within` must be above 0 and at most {MAX_WITHIN:.0f} seconds, not {self.within}")


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
    return budget.within is None or elapsed + latency.step_and_decode <= budget.within


def warn_of_deadline(budget: Budget, n: int, rows: int, codes: int, seconds: float, warm_up: float, engine: str) -> None:
    """Warn in one sentence if a request with a deadline is late, returns fewer rows than its `n`, or had to warm up first."""
    if budget.within is None:
        return
    said, within = list[str](), f"`within` of {budget.within:g} s"
    if rows < n:
        each = "1 code" if codes == 1 else f"{codes} codes"
        said.append(f"{within} is too short for `n` of {n}: {rows} rows of {each}, {seconds:.4f} s")
    elif seconds > budget.within and codes == 1:
        said.append(f"{within} is shorter than one step and one decode of {_count(n)}: one code, {seconds:.4f} s")
    if warm_up > WARM_UP_TOLERANCE * budget.within:
        said.append(f"the {engine} engine warmed up for {_count(n)}: {warm_up:.3g} s before `within` began")
    if said:
        warn("; ".join(said), DeadlineWarning)


def _count(rows: int) -> str:
    return "a single row" if rows == 1 else f"{rows} rows"
