"""Verdicts about FID from synthetic numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

import anytime
from anytime.core.results import Row, read
from anytime.experiments import fid
from anytime.experiments.fid_evaluator import fid_by_fraction
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.statistics import spread

RESULTS = Path(anytime.__file__).parents[2] / "results"

GOOD = {"ordered": (121.9, 94.7, 88.6, 87.7, 88.2), "unordered": (178.4, 130.4, 111.9, 106.2, 90.0)}


def rows(seed: int, name: str = "fid", **variants: tuple[float, ...]) -> list[Row]:
    return [
        {"series": variant, "fraction": fraction, "seed": seed, name: value}
        for variant, values in variants.items()
        for fraction, value in zip(PAPER_FRACTIONS, values, strict=True)
    ]


def holds(rows: list[Row]) -> list[bool | None]:
    """Below unordered, at 0.8, at 0.6, at full length."""
    return [verdict.holds for verdict in fid.decide(rows)]


def changed(variant: str, fraction: float, value: float) -> dict[str, tuple[float, ...]]:
    place = PAPER_FRACTIONS.index(fraction)
    return GOOD | {variant: (*GOOD[variant][:place], value, *GOOD[variant][place + 1 :])}


def test_one_seed_decides_all_but_full_length() -> None:
    assert holds(rows(0, **GOOD)) == [True, True, True, None, None]
    assert holds(rows(0, **changed("ordered", 0.4, 144.0))) == [False, True, True, None, False]
    assert holds(rows(0, **changed("ordered", 0.8, 88.2 * 1.041))) == [True, False, True, None, None]
    assert holds(rows(0, **changed("ordered", 0.8, 88.2 * 0.999))) == [True, True, True, None, None]
    assert holds(rows(0, **changed("ordered", 0.6, 88.2 * 1.071))) == [True, True, False, None, None]
    assert holds(rows(0, **changed("ordered", 0.6, 80.0))) == [True, True, True, None, None], (
        "better than full length is not a loss"
    )


@pytest.mark.parametrize("rise", [0.001, 0.019, 0.021, 0.039])
def test_a_loss_near_its_bound_needs_a_second_seed(rise: float) -> None:
    near = changed("ordered", 0.8, 88.2 * (1 + rise))
    verdict = fid.decide(rows(0, **near))[1]
    assert verdict.holds is None
    assert verdict.evidence.endswith("one seed, up to 2% may be chance")
    assert fid.decide([*rows(0, **near), *rows(1, **near)])[1].holds is (rise <= 0.02)


def test_the_ratio_of_two_lengths_varies_less_over_seeds_than_the_margin() -> None:
    measured = fid_by_fraction(read(RESULTS / "fid" / "cifar10.json").rows, "ordered")
    ratios = [[a / b for a, b in zip(measured[f], measured[1.0], strict=True)] for f in fid.MAX_LOSS]
    assert 0 < max(spread(each) for each in ratios) < fid.RATIO_MARGIN


def test_quality_that_rises_with_the_code_length() -> None:
    falling = GOOD | {"ordered": (121.9, 94.7, 80.0, 70.0, 60.0)}
    assert holds([*rows(0, **falling), *rows(1, **falling)])[4] is True
    assert holds([*rows(0, **GOOD), *rows(1, **GOOD)])[4] is False, "87.7 at 0.8, 88.2 with all codes"
    verdict = fid.decide(rows(0, **GOOD))[4]
    assert verdict.holds is None
    assert "may be chance from 0.4 to 0.6, 0.6 to 0.8, 0.8 to 1" in verdict.evidence


@pytest.mark.parametrize(
    ("ordered", "unordered", "expected"),
    [
        ((88.2, 88.4), (90.0, 90.1), True),
        ((92.2, 92.4), (90.0, 90.1), False),
        ((88.2, 88.4), (87.9, 88.6), None),  # the spread of 0.7 covers the difference
        ((88.0, 90.0), (90.0, 90.9), None),  # the spread of 2.0 covers 1.45
        ((88.0, 89.0), (90.0, 90.9), True),  # the spread of 1.0 does not cover 1.95
    ],
)
def test_full_length_is_decided_by_the_spread(
    ordered: tuple[float, float], unordered: tuple[float, float], expected: bool | None
) -> None:
    found = []
    for seed in (0, 1):
        pair = changed("ordered", 1.0, ordered[seed]) | {"unordered": changed("unordered", 1.0, unordered[seed])["unordered"]}
        found += rows(seed, **pair)
    assert holds(found)[3] is expected


def test_a_claim_is_undecided_if_one_seed_contradicts_the_mean() -> None:
    second = rows(1, **changed("ordered", 0.8, 88.2 * 1.03))
    assert holds([*rows(0, **GOOD), *second])[1] is None  # on average +1.2 %
    worse = rows(1, **changed("ordered", 0.8, 88.2 * 1.06))
    assert holds([*rows(0, **GOOD), *worse])[1] is False  # on average +2.7 %


def test_one_seed_decides_no_close_call() -> None:
    assert holds(rows(0, **changed("ordered", 0.8, 100.0)))[0] is None, "100.0 against 106.2 is within 10 %"


def test_held_out_data_do_not_change_the_verdicts() -> None:
    data = [{"series": fid.HELD_OUT, "fid": 3.15}]
    assert fid.decide([*rows(0, **GOOD), *data]) == fid.decide(rows(0, **GOOD))


@pytest.mark.parametrize(
    ("original", "expected"),
    [((60.0,), False), ((82.0,), None), ((110.0,), True), ((84.0, 85.0), False), ((87.0, 90.0), None), ((95.0, 96.0), True)],
)
def test_the_original_vq_vae_at_full_length(original: tuple[float, ...], expected: bool | None) -> None:
    found = []
    for seed, value in enumerate(original):
        own = changed("ordered", 1.0, 88.2 + 0.2 * seed)
        found += rows(seed, **own, original=(200.0, 190.0, 170.0, 150.0, value))
    verdict = fid.decide(found)[-1]
    assert verdict.holds is expected
    assert verdict.claim == "FID: ordered not above the original VQ-VAE at full length"
    assert f"original {original[0]:.1f}" in verdict.evidence


def test_numbers_of_another_network_are_not_called_fid() -> None:
    claims = [verdict.claim for verdict in fid.decide(rows(0, "frechet_random", **GOOD))]
    assert all(claim.startswith("frechet_random: ") and "FID" not in claim for claim in claims)
    assert all(verdict.claim.startswith("FID: ") for verdict in fid.decide(rows(0, **GOOD)))
