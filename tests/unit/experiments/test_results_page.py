"""The results page: one table of claims, a section for each file, seeds side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

import anytime
from anytime.core import results
from anytime.core.errors import UserError
from anytime.core.results import Results, Verdict
from anytime.experiments import figures, reproduce, results_page
from anytime.experiments.registry import EXPERIMENTS, find

ROOT = Path(anytime.__file__).parents[2]
ENVIRONMENT = {
    "hardware": "a GPU",
    "torch": "2.13",
    "date": "2026-11-15",
    "commit": "abc",
    "data": "pictures",
    "scale": "short",
}
TRAINING_INFO = {
    "command": "anytime train cifar10",
    "hardware": "a GPU",
    "precision": "bfloat16",
    "date": "2026-11-15",
    "commit": "abc",
}


def example(holds: bool | None = False) -> Results:
    rows = [{"series": "ordered", "fraction": f, "fid": 90.0 + f + s, "seed": s} for s in (0, 1) for f in (0.2, 1.0)]
    verdict = Verdict("a | claim", holds, "90.2 against 91.0", "what the paper says")
    schedule = "scale short: 40 + 60 + 20 epochs (the paper's: 200 + 200 + 50)"
    environment = ENVIRONMENT | {"training": {"ordered 0": TRAINING_INFO}}
    return Results("fid", "cifar10", "anytime reproduce fid --scale short", environment, schedule, rows, [verdict])


@pytest.mark.parametrize(("holds", "word"), [(True, "holds"), (False, "does not hold"), (None, "undecided")])
def test_every_claim_has_a_line(tmp_path: Path, holds: bool | None, word: str) -> None:
    example(holds).write(tmp_path / "results")
    text = results_page.page(tmp_path / "results", tmp_path / "docs" / "results.md")
    assert "| claim | paper | ours | holds? | schedule | command |" in text
    line = (
        rf"| **fid, cifar10**: a \| claim | Fig. 4a: what the paper says | 90.2 against 91.0 | {word} | "
        "scale short: 40 + 60 + 20 epochs (the paper's: 200 + 200 + 50) | `anytime reproduce fid --scale short` |"
    )
    assert line in text.splitlines()
    assert "| ordered | 90.20 / 91.20 | 91.00 / 92.00 |" in text
    assert "- ordered 0: `anytime train cifar10` (a GPU, bfloat16, 2026-11-15, commit abc)" in text
    assert "[../results/fid/cifar10.json](../results/fid/cifar10.json)" in text


def test_missing_figures_are_plotted(tmp_path: Path) -> None:
    path = example().write(tmp_path)
    assert figures.without_figure(tmp_path) == [path]
    assert reproduce.draw(path) == path.with_suffix(".png")
    assert figures.without_figure(tmp_path) == []
    assert figures.without_figure(tmp_path, redraw_all=True) == [path]


def test_legacy_results_are_still_read_and_plotted(tmp_path: Path) -> None:
    old = results.read(ROOT / "results" / "reconstruction" / "cifar10.json")
    assert reproduce.draw(old.write(tmp_path)).stat().st_size > 1000
    text = results_page.page(tmp_path, tmp_path / "page.md")
    assert "An earlier form of `ordering`" in text
    assert "| 40 + 60 epochs (the paper's: 200 + 200); CIFAR-10, all pixels as published, from cifar10.npz | " in text
    assert "| now `anytime reproduce ordering --dataset cifar10 --scale short --data DIR` |" in text
    assert old.command in text
    assert "| ordered-sum | 0.01334 |" in text


def test_every_experiment_has_a_table_and_a_module() -> None:
    assert EXPERIMENTS.keys() <= results_page.TABLES.keys()
    assert set(EXPERIMENTS) == {
        "theorem", "layout", "ordering", "fid", "objective", "speed", "samples", "priority-code", "audio",
        "vae", "priors", "truncation", "regularization", "tailored", "pca-prior",
    }  # fmt: skip
    for experiment in EXPERIMENTS.values():
        assert (Path(anytime.__file__).parent / f"{experiment.module.removeprefix('anytime.').replace('.', '/')}.py").is_file()


def test_canonical_command_has_no_local_paths() -> None:
    words = reproduce.canonical_command(find("fid"), "celeba", "short", local=True, samples=10_000, seeds=(3,))
    assert words == "anytime reproduce fid --dataset celeba --scale short --data DIR --samples 10000 --seed 3"
    assert (
        reproduce.canonical_command(find("theorem"), "discrete", "full", local=False, samples=None, seeds=(0,))
        == "anytime reproduce theorem"
    )


def test_larger_scales_are_not_replaced(tmp_path: Path) -> None:
    example().write(tmp_path)
    reproduce.check_overwrite(tmp_path, "fid", "cifar10", "short")
    reproduce.check_overwrite(tmp_path, "fid", "cifar10", "full")
    reproduce.check_overwrite(tmp_path, "fid", "celeba", "smoke")
    with pytest.raises(
        UserError, match="holds results of --scale short, which --scale smoke would replace; choose another --out"
    ):
        reproduce.check_overwrite(tmp_path, "fid", "cifar10", "smoke")
