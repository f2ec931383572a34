"""docs/choices.md: every answer follows from its numbers, and a question without numbers is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from anytime.core.results import Results, Row
from anytime.experiments.registry import EXPERIMENTS
from pages import choices
from pages.choices import FRACTIONS

UNIFORM = (121.9, 94.7, 88.6, 87.7, 88.2)


def results(experiment: str, rows: list[Row], scale: str = "short") -> Results:
    return Results(experiment, "cifar10", "", {"scale": scale, "commit": "abc1234"}, "", rows, [])


def by_fraction(value: str = "fid", **series: tuple[float, ...]) -> list[Row]:
    return [
        {"series": name.replace("_", "-"), "fraction": f, "codes": round(70 * f), "seed": 0, value: number}
        for name, numbers in series.items()
        for f, number in zip(FRACTIONS, numbers, strict=True)
    ]


def test_every_experiment_of_the_appendix_has_a_choice() -> None:
    assert {name for name, experiment in EXPERIMENTS.items() if experiment.scale == "short"} <= choices.CHOICES.keys()


def test_nothing_is_said_without_results(tmp_path: Path) -> None:
    assert choices.page(tmp_path, tmp_path / "choices.md") == choices.HEADER
    results("fid", by_fraction(ordered=UNIFORM), scale="smoke").write(tmp_path)
    assert choices.page(tmp_path, tmp_path / "choices.md") == choices.HEADER, "a smoke run decides nothing"


def test_a_line_for_each_file(tmp_path: Path) -> None:
    results("fid", by_fraction(ordered=UNIFORM)).write(tmp_path / "results")
    text = choices.page(tmp_path / "results", tmp_path / "docs" / "choices.md")
    assert "## How many of the codes?\n\n- **0.6 of them: at most 2% above the best**: FID 0.2: 121.9; " in text
    assert text.endswith("([fid, cifar10](../results/fid/cifar10.json))\n")
    assert text.count("## ") == 1


def test_an_answer_from_results_that_are_to_be_run_again_is_marked(tmp_path: Path) -> None:
    rows = by_fraction(transformer=UNIFORM, lstm=UNIFORM, pixelcnn=UNIFORM)
    for weights, marked in ((2e6, True), (2e7, False)):
        own = [{"series": name, "seed": 0, "bits_per_code": 5.5, "weights": 2e7} for name in ("transformer", "lstm")]
        own += [{"series": "pixelcnn", "seed": 0, "bits_per_code": 5.5, "weights": weights}]
        results("priors", rows + own).write(tmp_path / "results")
        text = choices.page(tmp_path / "results", tmp_path / "docs" / "choices.md")
        assert text.endswith("([priors, cifar10](../results/priors/cifar10.json)" + "; to be run again" * marked + ")\n")


def test_order_by_reconstruction_error(tmp_path: Path) -> None:
    rows = by_fraction("error", ordered=(0.01, 0.009, 0.008, 0.007, 0.006), unordered=(0.04, 0.03, 0.02, 0.01, 0.005))
    choice = choices.ordering_choice(results("ordering", rows))
    assert choice.answer == "yes, if you ever stop early"
    assert choice.why.startswith("from a fifth of the codes the error is 0.25 of the unordered model's, from all codes 1.20")


@pytest.mark.parametrize(
    ("pixelcnn", "answer"),
    [(1.3, "transformer or lstm"), (1.0, "transformer or lstm or pixelcnn"), (0.8, "pixelcnn")],
)
def test_priors_that_no_other_is_below(pixelcnn: float, answer: str) -> None:
    rows = by_fraction(transformer=UNIFORM, lstm=UNIFORM, pixelcnn=tuple(pixelcnn * v for v in UNIFORM))
    rows += [{"series": name, "seed": 0, "bits_per_code": 5.5, "weights": 2e7} for name in ("transformer", "lstm", "pixelcnn")]
    choice = choices.prior_choice(results("priors", rows))
    assert choice.answer == answer
    assert "20.0 million weights" in choice.why


def test_one_distribution() -> None:
    series = dict(zip(("uniform", "Geo(0.03)", "Geo(0.1)"), (1.0, 1.2, 1.4), strict=True))
    rows = [
        {"series": name, "fraction": f, "seed": 0, "fid": factor * v}
        for name, factor in series.items()
        for f, v in zip(FRACTIONS, UNIFORM, strict=True)
    ]
    assert choices.truncation_choice(results("truncation", rows)).answer == "uniform"


@pytest.mark.parametrize(
    ("ordered", "answer"),
    [((80.0, 80.0), "ordered"), ((99.0, 80.0), "ordered with 5,000 images, either with 45,000 images"),
     ((120.0, 80.0), "ordered with 5,000 images, unordered with 45,000 images"),
     ((120.0, 120.0), "unordered"), ((100.0, 101.0), "either")],
)  # fmt: skip
def test_ordered_or_not_by_size(ordered: tuple[float, float], answer: str) -> None:
    rows = [
        {"series": variant, "seed": 0, "images": size, "fid": fid}
        for variant, fids in (("ordered", ordered), ("unordered", (100.0, 100.0)))
        for size, fid in zip((45_000, 5_000), fids, strict=True)
    ]
    assert choices.size_choice(results("regularization", rows)).answer == answer


def test_one_model_or_many() -> None:
    behind = by_fraction(anytime=UNIFORM, tailored=(110.0, 100.0, 95.0, 94.0, 93.0))
    assert (
        choices.tailored_choice(results("tailored", behind)).answer == "a tailored model for 14 codes, if that is all you need"
    )
    ahead = by_fraction(anytime=UNIFORM, tailored=(130.0, 100.0, 95.0, 94.0, 93.0))
    assert choices.tailored_choice(results("tailored", ahead)).answer == "one anytime model"


@pytest.mark.parametrize(("pixels", "pca", "answer"), [(0.80, 1.22, "no"), (1.22, 0.80, "yes"), (1.0, 1.01, "either")])
def test_principal_components(pixels: float, pca: float, answer: str) -> None:
    rows: list[Row] = [
        {"series": name, "seed": 0, "part": "held out", "bits": b} for name, b in (("pixels", pixels), ("pca", pca))
    ]
    assert choices.pca_choice(results("pca-prior", rows)).answer == answer


def test_layouts_and_vaes() -> None:
    rows = [{"series": name, "region": "bottom half", "unexplained": u} for name, u in (("channel", 0.3), ("spatial", 1.1))]
    choice = choices.layout_choice(results("layout", rows))
    assert (choice.answer, "0.30 channel-wise and 1.10 spatial-wise" in choice.why) == ("per channel", True)
    errors = by_fraction("error", ordered=(0.01, 0.01, 0.01, 0.01, 0.01), standard=(0.05, 0.04, 0.03, 0.02, 0.009))
    assert choices.vae_choice(results("vae", errors)).answer == "yes, if you ever stop early"
