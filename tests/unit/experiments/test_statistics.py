"""Comparisons of numbers measured once per seed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

import anytime
from anytime.core.results import read
from anytime.experiments.statistics import ONE_SEED_MARGIN, all_hold, is_below, mean_over, values, verdict_below


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([88.0, 88.4], [90.0, 90.1], True),
        ([92.0, 92.4], [90.0, 90.1], False),
        ([88.0, 90.0], [90.0, 90.9], None),  # the spread of 2.0 covers 1.45
        ([88.0, 89.0], [90.0, 90.9], True),  # the spread of 1.0 does not cover 1.95
        ([90.0, 90.0], [90.0, 90.0], None),
    ],
)
def test_several_seeds_decide_by_their_spread(a: list[float], b: list[float], expected: bool | None) -> None:
    assert is_below(a, b) is expected
    assert is_below(b, a) is (None if expected is None else not expected)


def test_one_seed_decides_large_differences() -> None:
    assert is_below([100.0 * (1 - ONE_SEED_MARGIN) - 0.1], [100.0]) is True
    assert is_below([100.0 * (1 + ONE_SEED_MARGIN) + 0.1], [100.0]) is False
    assert is_below([100.0 * (1 - ONE_SEED_MARGIN) + 0.1], [100.0]) is None
    assert is_below([1.0], [2.0], level=100.0) is None, "a difference of differences is relative to `level`"
    assert is_below([1.0], [19.0], level=100.0) is True
    assert is_below([80.0, 81.0], [85.0]) is None, "a spread needs several seeds of both"


def test_all_places_must_agree() -> None:
    near, far, wrong = ([90.0], [91.0]), ([80.0], [90.0]), ([105.0], [90.0])
    assert verdict_below("", "", {"a": far, "b": far}).holds is True
    assert verdict_below("", "", {"a": far, "b": near}).holds is None
    assert verdict_below("", "", {"a": far, "b": near, "c": wrong}).holds is False
    assert all_hold([]) is True


def test_a_factor_changes_the_comparison_and_not_the_evidence() -> None:
    verdict = verdict_below("claim", "paper", {"0.6": ([88.6], [100.0])}, factor=1.1)
    assert (verdict.claim, verdict.holds, verdict.paper) == ("claim", None, "paper")
    assert verdict.evidence == "0.6: 88.6 against 100.0; one seed, up to 10% may be chance"
    assert verdict_below("", "", {"0.6": ([88.6], [110.0])}, factor=1.1).holds is True
    assert verdict_below("", "", {"0.6": ([88.0, 89.0], [99.0, 102.0])}).evidence.endswith("spread over seeds up to 3.0")


def test_values_are_sorted_by_seed() -> None:
    rows = [
        {"series": "a", "fraction": f, "seed": seed, "fid": 10 * seed + f} for seed in (1, 0) for f in (0.2, 1.0)
    ]  # fmt: skip
    rows += [{"series": "b", "fraction": 0.2, "seed": 0, "fid": 5.0}, {"series": "a", "seed": 0, "bits": 3.0}]
    assert values(rows, "a", "fid", fraction=0.2) == [0.2, 10.2]
    assert mean_over(rows, "a", "fid", fraction=(0.2, 1.0)) == [0.6, 10.6]
    assert values(rows, "a", "bits") == [3.0]


def test_the_margin_of_one_seed_covers_the_spread_of_two_in_the_committed_results() -> None:
    """Models trained on all images and sampled at a length they were trained for; others differ by more."""
    spreads = []
    for path in (Path(anytime.__file__).parents[2] / "results").glob("*/cifar10.json"):
        by_place = defaultdict(list)
        for row in read(path).rows:
            is_trained_length = row["series"] not in ("unordered", "original") or row.get("fraction") == 1.0
            if "fid" in row and "seed" in row and is_trained_length and row.get("images", 45_000) == 45_000:
                by_place[row["series"], row.get("fraction")].append(row["fid"])
        spreads += [(max(each) - min(each)) / min(each) for each in by_place.values() if len(each) > 1]
    assert 0.05 < max(spreads) < ONE_SEED_MARGIN
