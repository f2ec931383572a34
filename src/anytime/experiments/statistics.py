"""Comparisons of numbers measured once per seed: what is decided, and what may be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from anytime.core.results import Row, Verdict, select

ONE_SEED_MARGIN = 0.10
"""With one seed, a smaller relative difference may be chance.

Two seeds of a model that is trained on all images and sampled at a length it was trained for differ by up to 7 % in FID
(`results/`, checked by a test). It was 3 % until such spreads were measured.
"""

Values = Sequence[float]
"""One number for each seed."""


def values(rows: Sequence[Row], series: str, value: str, **where: Any) -> list[float]:
    """Return the numbers of a series in the rows that match `where`, by seed.

    >>> values([{"series": "a", "codes": 1, "seed": 0, "fid": 9.0}], "a", "fid", codes=1)
    [9.0]
    """
    found = [row for row in select(rows, series=series, **where) if row.get(value) is not None]
    return [float(row[value]) for row in sorted(found, key=lambda row: row["seed"])]


def mean_over(rows: Sequence[Row], series: str, value: str, **where: Sequence[Any]) -> list[float]:
    """Return the mean over several values of one key, by seed."""
    ((key, options),) = where.items()
    return [mean(each) for each in zip(*(values(rows, series, value, **{key: option}) for option in options), strict=True)]


def is_below(a: Values, b: Values, level: float | None = None) -> bool | None:
    """Return whether a is below b, or None if the difference may be chance.

    Several seeds of both: the difference must exceed their spread. Else it must exceed 10 % of `level`, by default b.

    >>> is_below([1.0, 1.1], [2.0, 2.1]), is_below([2.0, 2.1], [1.0, 1.1]), is_below([1.0, 2.0], [1.4, 2.4])
    (True, False, None)
    >>> is_below([1.0], [1.09]), is_below([1.0], [1.2])
    (None, True)
    """
    gap = mean(a) - mean(b)
    several = min(len(a), len(b)) > 1
    margin = spread(a, b) if several else ONE_SEED_MARGIN * (abs(mean(b)) if level is None else level)
    return gap < 0 if abs(gap) > margin else None


def spread(*each: Values) -> float:
    """Return the largest difference between two seeds of the same series."""
    return max(max(numbers) - min(numbers) for numbers in each)


def all_hold(each: Sequence[bool | None]) -> bool | None:
    """Combine claims: False if one is false, else None if one is undecided.

    >>> all_hold([True, True]), all_hold([True, None]), all_hold([False, None])
    (True, None, False)
    """
    return False if False in each else None if None in each else True


def combine_seeds(each: Sequence[bool], together: bool) -> bool | None:
    """Decide a claim by the mean of the seeds; None if the mean supports it and one seed does not.

    >>> combine_seeds([True, True], True), combine_seeds([True, False], True), combine_seeds([True, False], False)
    (True, None, False)
    """
    return together if all(each) or not together else None


def verdict_below(
    claim: str, paper: str, pairs: Mapping[str, tuple[Values, Values]], *, factor: float = 1.0, digits: int = 1
) -> Verdict:
    """Decide whether `factor` times the first of each pair is below the second, for every key of `pairs`."""
    holds = all_hold([is_below([factor * number for number in a], b) for a, b in pairs.values()])
    texts = [f"{key}: {mean(a):.{digits}f} against {mean(b):.{digits}f}" for key, (a, b) in pairs.items()]
    seeds = min(len(numbers) for pair in pairs.values() for numbers in pair)
    widest = max(spread(a, b) for a, b in pairs.values())
    chance = f"one seed, up to {ONE_SEED_MARGIN:.0%} may be chance"
    margin = f"spread over seeds up to {widest:.{digits}f}" if seeds > 1 else chance
    return Verdict(claim, holds, f"{'; '.join(texts)}; {margin}", paper)
