"""Every experiment at smoke scale, and the pages made from their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import anytime
from anytime import data
from anytime.errors import UserError
from anytime.experiments import page, reconstruction, results

ROOT = Path(anytime.__file__).parents[2]


def test_reconstruction(tmp_path: Path, here: Callable[..., object], once: Callable[..., Path]) -> None:
    def train(folder: Path) -> None:
        for name, words in (("ordered", ()), ("unordered", ("--truncation", "full"))):
            assert here("train", "digits", "--scale", "smoke", *words, "--out", folder / name).status == 0  # type: ignore[attr-defined]

    runs = once("experiment-runs", train)
    dataset = data.load("digits").subset(256, 64)
    found = reconstruction.compute(dataset, {n: runs / n for n in ("ordered", "unordered")}, torch.device("cpu"), "command")
    path = found.write(tmp_path)
    assert path == tmp_path / "reconstruction" / "digits.json"
    assert results.read(path) == found
    assert {row["series"] for row in found.rows} == {"ordered", "unordered", "pca"}
    assert [row["fraction"] for row in found.rows if row["series"] == "pca"] == list(reconstruction.FRACTIONS)
    assert [verdict.holds for verdict in found.verdicts] == [None, None, None]  # a smoke run decides nothing
    assert reconstruction.draw(path).stat().st_size > 1000
    assert "| unordered |" in page.page(tmp_path, tmp_path / "page.md")


def test_verdicts_follow_the_numbers() -> None:
    def rows(name: str, errors: tuple[float, ...]) -> list[results.Row]:
        return [{"series": name, "fraction": f, "error": e} for f, e in zip(reconstruction.FRACTIONS, errors, strict=True)]

    principal = rows("pca", (0.5, 0.4, 0.3, 0.2, 0.1))
    good = rows("ordered", (0.2, 0.1, 0.08, 0.06, 0.05)) + rows("unordered", (0.9, 0.7, 0.5, 0.3, 0.04)) + principal
    assert [verdict.holds for verdict in reconstruction.decide(good)] == [True, True, True]
    bad = rows("ordered", (0.6, 0.1, 0.08, 0.3, 0.2)) + rows("unordered", (0.9, 0.7, 0.5, 0.3, 0.04)) + principal
    assert [verdict.holds for verdict in reconstruction.decide(bad)] == [False, False, False]


def test_the_results_page_is_up_to_date() -> None:
    target = ROOT / "docs" / "results.md"
    assert target.read_text(encoding="utf-8") == page.page(ROOT / "results", target), "run `make docs`"


def test_results_of_another_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"format": 0}')
    with pytest.raises(UserError, match="format 0"):
        results.read(path)
    path.write_text('{"format": 1, "rows": []}')
    with pytest.raises(UserError, match="no results file"):
        results.read(path)
