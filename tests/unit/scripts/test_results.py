"""docs/results.md: one table of claims, one section per file, seeds side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from anytime.core.results import Results, Verdict
from anytime.experiments.registry import EXPERIMENTS
from pages import results

ENVIRONMENT = {
    "hardware": "a GPU",
    "torch": "2.13",
    "date": "2026-11-15",
    "commit": "abc",
    "data": "images",
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
    text = results.page(tmp_path / "results", tmp_path / "docs" / "results.md")
    assert "| claim | paper | ours | holds? | seeds | schedule | command |" in text
    line = (
        rf"| **fid, cifar10**: a \| claim | Fig. 4a: what the paper says | 90.2 against 91.0 | {word} | 2 | "
        "scale short: 40 + 60 + 20 epochs (the paper's: 200 + 200 + 50) | `anytime reproduce fid --scale short` |"
    )
    assert line in text.splitlines()
    assert "| ordered | 90.70 (90.20 / 91.20) | 91.50 (91.00 / 92.00) |" in text
    assert "- ordered 0: `anytime train cifar10` (a GPU, bfloat16, 2026-11-15, commit abc)" in text
    assert "[../results/fid/cifar10.json](../results/fid/cifar10.json)" in text


def test_every_experiment_has_a_table() -> None:
    assert EXPERIMENTS.keys() == results.TABLES.keys()
