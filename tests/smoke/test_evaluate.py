"""`anytime evaluate` as a whole: its files, its report, and a run that is killed and goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anytime.evaluation import statistics
from anytime.experiments import results

Here = Callable[..., Any]
SMOKE = ("--scale", "smoke", "--samples", 40, "--fractions", "0.25,1.0")


@pytest.fixture
def run(finished: Callable[[str], Path], tmp_path: Path) -> Path:
    """A finished run's folder of our own."""
    return Path(shutil.copytree(finished("best"), tmp_path / "run"))


def test_an_evaluation(run: Path, here: Here) -> None:
    outcome = here("evaluate", run, *SMOKE, "--json")
    assert outcome.status == 0, outcome.err
    folder = run / "evaluation"
    curves = {"quality.png", "error.png", "bits.png", "speed.png"}
    grids = {"samples.png", "reconstructions.png"}
    assert {path.name for path in folder.iterdir()} == {"evaluation.json", "report.html"} | curves | grids
    *lines, last = outcome.out.splitlines()
    found = results.read(folder / "evaluation.json")
    assert json.loads(last)["rows"] == found.rows
    assert (found.experiment, found.dataset, found.verdicts) == ("evaluation", "digits", [])
    assert found.schedule.startswith("recipe best, scale smoke: 6 + 6 + 6 epochs")
    assert {"hardware", "torch", "commit", "date", "data", "model"} <= found.environment.keys()
    sampled = [row for row in found.rows if row["series"] == "samples"]
    assert [(row["fraction"], row["codes"], row["samples"]) for row in sampled] == [(0.25, 4, 40), (1.0, 16, 40)]
    assert all("frechet_random" in row and "fid" not in row for row in found.rows if "network" in row)
    assert all("40 samples" in row["warning"] for row in sampled)
    assert any("40 samples are no more than the 64 features" in line for line in lines)
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 6
    assert "http" not in page
    for words in ("frechet_random", "recipe best", "no more than the 64 features", "bits a held-out code"):
        assert words in page


def test_a_killed_evaluation_goes_on(run: Path, here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(statistics, "CHUNK", 10)
    monkeypatch.setattr(statistics, "SAVE_SECONDS", 0.0)
    assert here("evaluate", run, *SMOKE, "--out", tmp_path / "whole").status == 0
    save, saves = statistics._save, []

    def dying(path: Path, *rest: Any) -> None:
        save(path, *rest)
        if path.name.startswith("samples-"):
            saves.append(path)
            if len(saves) == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(statistics, "_save", dying)
        assert here("evaluate", run, *SMOKE, "--out", tmp_path / "parts").status == 130
    assert not (tmp_path / "parts" / "evaluation.json").exists()
    outcome = here("evaluate", run, *SMOKE, "--out", tmp_path / "parts")
    assert outcome.status == 0
    assert "resuming the samples stage at step 40 of 80" in outcome.err
    whole, parts = (results.read(tmp_path / name / "evaluation.json").rows for name in ("whole", "parts"))
    assert [row for row in parts if row["series"] != "speed"] == [row for row in whole if row["series"] != "speed"]
    assert not (tmp_path / "parts" / "progress").exists()


def test_a_set_that_is_absent_is_replaced_by_strokes(here: Here, tmp_path: Path) -> None:
    assert here("train", "mnist", "--scale", "smoke", "--out", tmp_path / "run").status == 0
    outcome = here("evaluate", tmp_path / "run", *SMOKE)
    assert outcome.status == 0
    assert "mnist is not here: comparing with synthetic strokes" in outcome.err
    assert "not real data" in results.read(tmp_path / "run" / "evaluation" / "evaluation.json").environment["data"]
