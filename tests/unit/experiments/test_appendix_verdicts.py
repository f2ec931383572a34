"""Verdicts of the appendix's experiments from synthetic numbers."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest
import torch

from anytime.core.errors import UserError
from anytime.core.plots import plot_png
from anytime.core.results import Results, Row
from anytime.experiments import pca_prior, priors, regularization, tailored, truncation, vae
from anytime.experiments.ordering import error_rows
from anytime.experiments.plots import encode_strip
from anytime.experiments.registry import PAPER_FRACTIONS

Curves = dict[str, tuple[float, ...]]
UNIFORM = (121.9, 94.7, 88.6, 87.7, 88.2)


def by_fraction(curves: Curves, seed: int = 0) -> list[Row]:
    return [
        {"series": series, "fraction": fraction, "codes": round(70 * fraction), "seed": seed, "fid": value}
        for series, values in curves.items()
        for fraction, value in zip(PAPER_FRACTIONS, values, strict=True)
    ]


def holds(module: ModuleType, rows: list[Row]) -> list[bool | None]:
    return [verdict.holds for verdict in module.decide(rows)]


def two_seeds(rows: list[Row], change: float = 1.025) -> list[Row]:
    """Return the rows of seed 0, and those of a second seed whose FIDs are 2.5 % higher."""
    second = [{**row, "seed": 1, **({"fid": change * row["fid"]} if "fid" in row else {})} for row in rows]
    return [*rows, *second]


def times(factor: float, values: Sequence[float] = UNIFORM) -> tuple[float, ...]:
    return tuple(factor * value for value in values)


# Transformer and LSTM below PixelCNN from 0.4 on, PixelCNN below both at 0.2.

PRIORS: Curves = {
    "transformer": UNIFORM,
    "lstm": times(1.01),
    "pixelcnn": (110.0, 100.0, 96.0, 95.0, 95.0),
}


def test_priors_the_papers_claim() -> None:
    assert holds(priors, two_seeds(by_fraction(PRIORS))) == [True, True, True]


def test_priors_a_pixelcnn_that_is_better_everywhere_or_worse_everywhere() -> None:
    assert holds(priors, two_seeds(by_fraction(PRIORS | {"pixelcnn": times(0.9)}))) == [False, False, True]
    assert holds(priors, two_seeds(by_fraction(PRIORS | {"pixelcnn": times(1.2)}))) == [True, True, False]


def test_priors_of_different_trainings_are_refused() -> None:
    rows: list[Row] = []
    for seed in (0, 1):
        for series in PRIORS:
            about: Row = {"series": series, "seed": seed, "model": f"{series} {seed}"}
            rows += [{**about, "bits_per_code": 6.0, "autoencoder": f"a{seed}"}, {**about, "fid": 90.0}]
    priors.check_same_codes(rows)
    for change in ({"autoencoder": "other"}, {"model": "other"}):
        with pytest.raises(UserError, match="the measurements of seed 1 are of different trainings; remove those of ordered"):
            priors.check_same_codes([*rows[:-2], {**rows[-2], **change}, rows[-1]])


def test_priors_too_near_to_tell() -> None:
    assert holds(priors, two_seeds(by_fraction(PRIORS | {"pixelcnn": times(1.02)}))) == [None, None, None]


def test_priors_seeds_that_disagree() -> None:
    second = by_fraction(PRIORS | {"pixelcnn": (110.0, 100.0, 96.0, 80.0, 95.0)}, seed=1)
    assert holds(priors, [*by_fraction(PRIORS), *second])[0] is None


# All distributions trade off; Geo(0.03) above on average, and by little; Geo(0.1) far above when long.

DISTRIBUTIONS: Curves = {"uniform": UNIFORM, "Geo(0.03)": times(1.05), "Geo(0.1)": (115.0, 100.0, 110.0, 112.0, 113.0)}


def test_truncation_the_papers_claim() -> None:
    assert holds(truncation, two_seeds(by_fraction(DISTRIBUTIONS))) == [None, True, True, True], "113 against 115 may be chance"
    longer = by_fraction(DISTRIBUTIONS | {"Geo(0.1)": (125.0, 100.0, 110.0, 112.0, 113.0)})
    assert holds(truncation, two_seeds(longer)) == [True, True, True, True]


def test_truncation_better_distribution() -> None:
    assert holds(truncation, two_seeds(by_fraction(DISTRIBUTIONS | {"Geo(0.03)": times(0.9)})))[1:3] == [False, True]


def test_truncation_far_worse_distribution() -> None:
    assert holds(truncation, two_seeds(by_fraction(DISTRIBUTIONS | {"Geo(0.03)": times(1.2)})))[1:3] == [True, False]


def test_truncation_steep_distribution_equally_good() -> None:
    assert holds(truncation, two_seeds(by_fraction(DISTRIBUTIONS | {"Geo(0.1)": UNIFORM})))[3] is False


# Anytime below tailored from 0.4 on, tailored below at 0.2.


def test_tailored_the_papers_claim() -> None:
    rows = by_fraction({"anytime": UNIFORM, "tailored": (110.0, 100.0, 100.0, 99.0, 98.0)})
    assert holds(tailored, two_seeds(rows)) == [True, True]
    assert "14 codes: 110.0 against 121.9" in tailored.decide(rows)[1].evidence


def test_tailored_one_seed_decides_no_close_call() -> None:
    rows = by_fraction({"anytime": UNIFORM, "tailored": (100.0, 100.0, 100.0, 99.0, 98.0)})
    assert holds(tailored, rows) == [None, True], "100 against 94.7 may be chance, 100 against 121.9 not"


def test_tailored_the_opposite() -> None:
    assert holds(tailored, two_seeds(by_fraction({"anytime": UNIFORM, "tailored": times(0.9)}))) == [False, True]
    assert holds(tailored, two_seeds(by_fraction({"anytime": UNIFORM, "tailored": times(1.1)}))) == [True, False]


def by_size(
    ordered: Sequence[float], unordered: Sequence[float], errors: tuple[float, float] = (0.012, 0.010), rise: float = 2.0
) -> list[Row]:
    """Return rows of both checkpoints; the last has the same FID and `rise` more held-out bits than the best."""
    rows: list[Row] = []
    for variant, numbers, error in (("ordered", ordered, errors[0]), ("unordered", unordered, errors[1])):
        for series, bits in ((variant, 7.0), (f"{variant}, last", 7.0 + rise)):
            for size, fid in zip((45_000, 25_000, 10_000, 5_000), numbers, strict=True):
                about: Row = {"series": series, "seed": 0, "images": size}
                held_out = {"held_out_error": error, "held_out_bits": bits}
                rows += [{**about, "training_error": error, "training_bits": 3.0, **held_out}, {**about, "fid": fid}]
    return rows


# The unordered prior overfits. Ordered below at every size; more so with the fewest; with every step, and the same by the last
# checkpoint; in spite of the training error.

UNORDERED = (100.0, 120.0, 160.0, 200.0)


def test_regularization_the_papers_claim() -> None:
    rows = by_size((95.0, 108.0, 140.0, 165.0), UNORDERED)
    assert holds(regularization, two_seeds(rows)) == [True] * 8
    assert "45,000: +5.0; 25,000: +12.0; 10,000: +20.0; 5,000: +35.0" in regularization.decide(rows)[2].evidence


def test_regularization_a_gain_that_does_not_grow() -> None:
    rows = two_seeds(by_size((90.0, 110.0, 150.0, 190.0), UNORDERED))
    assert holds(regularization, rows) == [True, True, None, None, True, None, None, True]


def test_regularization_a_gain_that_shrinks() -> None:
    assert holds(regularization, two_seeds(by_size((70.0, 100.0, 150.0, 195.0), UNORDERED)))[2:4] == [False, False]


def test_regularization_checkpoints_are_decided_apart() -> None:
    rows = two_seeds(by_size((95.0, 108.0, 140.0, 165.0), UNORDERED))
    worse = [{**row, "fid": 300.0} if row["series"] == "ordered, last" and "fid" in row else row for row in rows]
    assert holds(regularization, worse)[:5] == [True, True, True, True, False]


@pytest.mark.parametrize("rise", [0.0, -1.0])
def test_regularization_without_overfitting_no_gain_is_decided(rise: float) -> None:
    rows = two_seeds(by_size((95.0, 108.0, 140.0, 165.0), UNORDERED, rise=rise))
    overfits, lower, more, every_step, *_ = regularization.decide(rows)
    assert overfits.holds is (None if rise == 0 else False)
    assert (lower.holds, more.holds, every_step.holds) == (True, None, None)
    assert "no prior is known to overfit" in more.evidence


def test_regularization_rows_of_the_earlier_schedule_decide_no_gain() -> None:
    rows = [row for row in two_seeds(by_size((95.0, 108.0, 140.0, 165.0), UNORDERED)) if "last" not in row["series"]]
    assert holds(regularization, rows) == [None, True, None, None, True]
    assert "rows of an earlier schedule: the same epochs for every size" in regularization.decide(rows)[0].evidence


def test_regularization_errors_and_fid_of_different_trainings_are_refused() -> None:
    rows = [row | {"model": f"{row['series']} {row['images']}"} for row in by_size(UNORDERED, UNORDERED)]
    regularization.check_same_models(rows)
    with pytest.raises(UserError, match="errors and FID of ordered of seed 0 with 45,000 images are of different trainings"):
        regularization.check_same_models([rows[0] | {"model": "another"}, *rows[1:]])


def test_regularization_a_training_error_that_is_no_higher() -> None:
    assert holds(regularization, two_seeds(by_size((95.0, 108.0, 140.0, 165.0), UNORDERED, (0.008, 0.010))))[-1] is False


def test_regularization_unordered_ahead_on_all_images() -> None:
    rows = two_seeds(by_size((110.0, 108.0, 140.0, 165.0), UNORDERED))
    assert holds(regularization, rows) == [True, False, True, True, False, True, True, False]


def vae_rows(series: str, gains: Sequence[float], seed: int = 0, variance: float = 0.01) -> list[Row]:
    errors = [1.0]
    for gain in gains:
        errors.append(errors[-1] - gain)
    return error_rows(errors, series=series, seed=seed, variance=variance)


FALLING = (0.3, 0.2, 0.12, 0.08, 0.05)
IRREGULAR = (0.05, 0.2, 0.01, 0.3, 0.19)


def test_vae_the_papers_claim() -> None:
    assert holds(vae, [*vae_rows("ordered", FALLING), *vae_rows("standard", IRREGULAR)]) == [True, True]


def test_vae_each_variance_is_decided_on_its_own() -> None:
    first = [*vae_rows("ordered", FALLING), *vae_rows("standard", IRREGULAR)]
    second = [vae_rows(series, FALLING, variance=0.002) for series in ("ordered", "standard")]
    rows = [*first, *second[0], *second[1]]
    assert holds(vae, rows) == [True, True, False, False]
    assert [verdict.claim.split(":")[0] for verdict in vae.decide(rows)] == 2 * ["variance 0.01"] + 2 * ["variance 0.002"]


def test_vae_a_standard_vae_that_is_ordered_as_well() -> None:
    rows = [*vae_rows("ordered", FALLING), *vae_rows("standard", FALLING)]
    assert holds(vae, rows) == [False, False]
    assert "not below at 1–4 groups" in vae.decide(rows)[1].evidence


def test_vae_a_seed_that_denies_it() -> None:
    first = [*vae_rows("ordered", FALLING), *vae_rows("standard", IRREGULAR)]
    second = [*vae_rows("ordered", FALLING, 1), *vae_rows("standard", (0.25, 0.2, 0.12, 0.08, 0.1), 1)]
    assert holds(vae, [*first, *second])[0] is None


def bits(pixels: float, pca: float, seed: int = 0, frechet: tuple[float, float] | None = None) -> list[Row]:
    found = {"pixels": pixels, "pca": pca}
    rows: list[Row] = [{"series": s, "seed": seed, "part": "held out", "bits": b} for s, b in found.items()]
    rows += [
        {"series": s, "seed": seed, "epoch": epoch, "validation_bits": b + 1 / epoch}
        for s, b in found.items()
        for epoch in (1, 2)
    ]
    if frechet is not None:
        rows += [
            {"series": s, "seed": seed, "part": "samples", "frechet_classifier": distance, "classified": 0.9}
            for s, distance in zip(found, frechet, strict=True)
        ]
    return rows + [{"series": s, "seed": seed, "png": encode_strip(torch.rand(4, 1, 8, 8), 2)} for s in found]


@pytest.mark.parametrize(
    ("pixels", "pca", "expected"),
    [
        (0.70, 1.22, [True, True, True, None]),
        (0.70, 1.05, [True, True, True, True]),
        (0.70, 0.80, [True, False, True, True]),
        (0.70, 3.89, [True, True, True, False]),
        (1.22, 0.70, [False, False, False, True]),
        (0.81, 0.82, [None, False, None, True]),
    ],
)
def test_pca_prior_the_papers_claim(pixels: float, pca: float, expected: list[bool | None]) -> None:
    assert holds(pca_prior, bits(pixels, pca)) == expected, "without samples there is no verdict on them"


def test_pca_prior_says_whether_the_models_have_converged() -> None:
    assert "last epoch: -0.500 pixels, -0.500 pca" in pca_prior.decide(bits(0.7, 1.2))[0].evidence


@pytest.mark.parametrize(("second", "expected"), [((10.0, 50.0), True), ((60.0, 50.0), None), ((90.0, 40.0), False)])
def test_pca_prior_samples_are_judged_by_a_number(second: tuple[float, float], expected: bool | None) -> None:
    first = (12.0, 48.0) if expected is not False else (88.0, 42.0)
    rows = [*bits(0.7, 1.2, 0, first), *bits(0.7, 1.2, 1, second)]
    verdict = pca_prior.decide(rows)[-1]
    assert verdict.holds is expected
    assert "classified with a confidence above 0.9: 90.0% against 90.0%" in verdict.evidence


def test_pca_prior_figure() -> None:
    results = Results("pca-prior", "mnist", "", {}, "", [*bits(0.8, 1.22), *bits(0.81, 1.2, 1)], [])
    assert plot_png(pca_prior.draw(results)).startswith(b"\x89PNG")


@pytest.mark.parametrize("module", [priors, truncation, tailored])
def test_numbers_of_another_network_are_not_called_fid(module: ModuleType) -> None:
    names = {"priors": priors.SERIES, "truncation": truncation.SERIES, "tailored": ("anytime", "tailored")}
    rows = by_fraction(dict.fromkeys(names[module.__name__.rpartition(".")[2]], UNIFORM))
    assert all(verdict.claim.startswith("FID: ") for verdict in module.decide(rows))
    other = [{**{key: value for key, value in row.items() if key != "fid"}, "frechet_random": row["fid"]} for row in rows]
    assert all(verdict.claim.startswith("frechet_random: ") for verdict in module.decide(other))
