"""Rows and verdicts about errors by code length, from synthetic numbers."""

from __future__ import annotations

import pytest

from anytime.core.results import Row
from anytime.experiments import ordering

ORDERED = [1.0, 0.30, 0.22, 0.17, 0.14, 0.12, 0.11, 0.105, 0.102, 0.101, 0.1005]
UNORDERED = [1.0, 0.95, 0.97, 0.80, 0.81, 0.60, 0.50, 0.52, 0.30, 0.25, 0.08]
PRINCIPAL = [1.0, 0.60, 0.50, 0.42, 0.36, 0.31, 0.28, 0.26, 0.25, 0.24, 0.23]


def rows(ordered: list[float], unordered: list[float] = UNORDERED, principal: list[float] = PRINCIPAL) -> list[Row]:
    named = {"ordered": ordered, "unordered": unordered, "pca": principal}
    return [row for name, errors in named.items() for row in ordering.error_rows(errors, series=name)]


def holds(found: list[Row]) -> list[bool | None]:
    """Least error, PCA ahead, falling gains."""
    return [verdict.holds for verdict in ordering.decide(found)]


def test_rows_hold_error_and_gain_of_every_length() -> None:
    found = ordering.error_rows(ORDERED, series="ordered", seed=0)
    assert [row["codes"] for row in found] == list(range(11))
    assert [row["error"] for row in found] == ORDERED
    assert found[0]["gain"] is None
    assert [row["gain"] for row in found[1:3]] == pytest.approx([0.7, 0.08])
    assert {row["codes"]: row["fraction"] for row in found if "fraction" in row} == {2: 0.2, 4: 0.4, 6: 0.6, 8: 0.8, 10: 1.0}


def test_verdicts_follow_the_numbers() -> None:
    assert holds(rows(ORDERED))[:3] == [True, True, True]
    above_pca = [*ORDERED[:3], 0.43, *ORDERED[4:]]
    assert holds(rows(above_pca))[0] is False
    assert "3 codes" in ordering.decide(rows(above_pca))[0].evidence
    above_unordered = [*ORDERED[:9], 0.26, *ORDERED[10:]]
    assert holds(rows(above_unordered, principal=[2.0] * 11))[0] is False
    good = [1.0, 0.55, *UNORDERED[2:]]
    assert holds(rows(ORDERED, unordered=good))[1] is False, "unordered is ahead of PCA at one code"
    assert holds(rows(UNORDERED))[2] is False, "gains that do not fall"
    assert holds(rows(ORDERED, unordered=ORDERED))[2] is False, "the unordered gains fall too"


def test_order_costs_little_with_all_codes_and_gains_much_with_few() -> None:
    same = [*ORDERED[:10], UNORDERED[10]]
    assert holds(rows(same))[3] is True
    assert holds(rows([*ORDERED[:10], 1.11 * UNORDERED[10]]))[3] is False, "not similar at full length"
    assert holds(rows([ORDERED[0], UNORDERED[1], *same[2:]]))[3] is False, "no better with one code"


def test_zero_and_all_codes_are_not_compared() -> None:
    beaten = [2.0, *ORDERED[1:10], 0.9]
    assert holds(rows(beaten))[0] is True


def test_seeds_are_averaged() -> None:
    both = rows(ORDERED) + ordering.error_rows([error + 0.5 for error in ORDERED], series="ordered", seed=1)
    assert holds(both)[0] is False
