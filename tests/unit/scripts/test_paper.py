"""docs/paper.md: every figure and claim of the paper, with the verdicts that test it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anytime.core.results import Results, Verdict, read, results_files
from anytime.experiments.registry import EXPERIMENTS
from decide_results import RESULTS
from pages import paper

FILES = results_files(RESULTS)


def test_every_experiment_is_a_figure_of_the_page() -> None:
    assert sorted(figure.experiment for figure in paper.FIGURES) == sorted(EXPERIMENTS)


@pytest.mark.parametrize("figure", paper.FIGURES, ids=lambda figure: figure.experiment)
def test_every_claim_has_a_verdict_and_every_verdict_quotes_a_claim(figure: paper.PaperFigure) -> None:
    found = [read(path) for path in FILES if path.parent.name == figure.experiment]
    quoted = {verdict.paper for results in found for verdict in results.verdicts} - {""}
    if found:
        assert quoted == set(figure.claims)


def test_a_claim_without_results_is_shown(tmp_path: Path) -> None:
    text = paper.page(tmp_path, tmp_path / "docs" / "paper.md")
    assert "No results yet: `anytime reproduce fid`." in text
    assert (
        "| a better FID up to 100% of the codes, on CIFAR-10 even when sampling full codes | – | – | no result yet | – |"
        in text
    )


def test_a_claim_beside_its_verdict(tmp_path: Path) -> None:
    claim = "a better FID than unordered at all fractional code lengths"
    environment = {"commit": "abc", "scale": "short"}
    verdict = Verdict("FID: ordered below unordered", False, "90 against 80", claim)
    rows = [{"series": "ordered", "seed": seed} for seed in (0, 1)]
    Results("fid", "cifar10", "anytime reproduce fid", environment, "", rows, [verdict]).write(tmp_path / "results")
    text = paper.page(tmp_path / "results", tmp_path / "docs" / "paper.md")
    assert f"| {claim} | FID: ordered below unordered | cifar10 | does not hold | 90 against 80 |" in text
    assert "![fid, cifar10](../results/fid/cifar10.png)\n\ncifar10: scale short, seeds 0, 1." in text
