"""Comparisons of numbers that were measured once for each seed: what is decided, and what may be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from anytime.core.results import Row

CLOSE = 0.03
"""With one seed, the share of the level within which a difference may be chance; set before any run was compared."""

Values = Sequence[float]
"""One number for each seed."""


def values(rows: Sequence[Row], series: str, value: str, **where: Any) -> list[float]:
    """The numbers of a series at one place, by seed.

    >>> values([{"series": "a", "codes": 1, "seed": 0, "fid": 9.0}], "a", "fid", codes=1)
    [9.0]
    """
    own = [row for row in rows if row["series"] == series and row.get(value) is not None]
    found = [row for row in own if all(row.get(key) == wanted for key, wanted in where.items())]
    return [float(row[value]) for row in sorted(found, key=lambda row: row["seed"])]


def averages(rows: Sequence[Row], series: str, value: str, **where: Sequence[Any]) -> list[float]:
    """The mean over several places, by seed."""
    ((key, places),) = where.items()
    return [mean(each) for each in zip(*(values(rows, series, value, **{key: place}) for place in places), strict=True)]


def less(a: Values, b: Values, level: float | None = None) -> bool | None:
    """Whether a is below b; None where the seeds of one differ by as much as the two do, or one seed cannot tell.

    >>> less([1.0, 1.1], [2.0, 2.1]), less([2.0, 2.1], [1.0, 1.1]), less([1.0, 2.0], [1.4, 2.4])
    (True, False, None)
    >>> less([1.0], [1.02]), less([1.0], [1.04])
    (None, True)
    """
    gap = mean(a) - mean(b)
    chance = spread(a, b) if len(a) > 1 else CLOSE * (abs(mean(b)) if level is None else level)
    return gap < 0 if abs(gap) > chance else None


def spread(*each: Values) -> float:
    """How far the seeds of one kind lie apart, at most."""
    return max(max(numbers) - min(numbers) for numbers in each)


def every(each: Sequence[bool | None]) -> bool | None:
    """All of several claims at once: false where one is, open where one is.

    >>> every([True, True]), every([True, None]), every([False, None])
    (True, None, False)
    """
    return False if False in each else None if None in each else True


def below(pairs: Mapping[str, tuple[Values, Values]], factor: float = 1.0, digits: int = 1) -> tuple[bool | None, str]:
    """Whether `factor` times the first is below the second at every place, and both of them there."""
    holds = every([less([factor * number for number in a], b) for a, b in pairs.values()])
    texts = [f"{place}: {mean(a):.{digits}f} against {mean(b):.{digits}f}" for place, (a, b) in pairs.items()]
    widest = max(spread(a, b) for a, b in pairs.values())
    seeds = min(len(a) for a, _ in pairs.values())
    chance = f"spread over seeds up to {widest:.{digits}f}" if seeds > 1 else f"one seed, up to {CLOSE:.0%} may be chance"
    return holds, f"{'; '.join(texts)}; {chance}"
