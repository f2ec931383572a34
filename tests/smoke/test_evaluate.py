"""`anytime evaluate` as a whole: its files, its report, and a run that is killed and goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from anytime.core import results
from anytime.data.audio_io import write_wav
from anytime.metrics import feature_stats
from anytime.model import load

RunCLI = Callable[..., Any]
SMOKE = ("--scale", "smoke", "--samples", 40, "--fractions", "0.25,1.0")


@pytest.fixture
def run(finished: Callable[[str], Path], tmp_path: Path) -> Path:
    """A finished run's folder of our own."""
    return Path(shutil.copytree(finished("best"), tmp_path / "run"))


def test_an_evaluation(run: Path, run_cli: RunCLI) -> None:
    outcome = run_cli("evaluate", run, *SMOKE, "--json")
    assert outcome.status == 0, outcome.err
    folder = run / "evaluation"
    curves = {"quality.png", "error.png", "bits.png", "speed.png"}
    grids = {"samples.png", "reconstructions.png", "neighbours.png"}
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
    assert any("40 samples for 64 features" in line for line in lines)
    kept = json.loads((run / "model" / "quality.json").read_text())
    assert kept["model"] == found.environment["model"] == load(run).hash
    errors = [row["error"] for row in found.rows if row["series"] == "error"]
    assert [row["error"] for row in kept["rows"]] == errors[1:]
    assert all(row["fid"] is None for row in kept["rows"]), "a distance of the random network is not FID"
    assert [row["codes"] for row in kept["rows"] if row["latency_ms"] is not None] == [4, 16]
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 7
    assert "http" not in page
    for words in ("frechet_random", "recipe best", "samples for 64 features", "bits per held-out code"):
        assert words in page


def test_quality_table(run: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    """Evaluate, then ask for a quality; the choice is said, and is what `codes` would have given."""
    assert "anytime evaluate" in run_cli("sample", run, "--quality", 0.9).sentence
    assert run_cli("evaluate", run, *SMOKE).status == 0
    outcome = run_cli("sample", run, "-n", 2, "--quality", 0.9, "--out", tmp_path / "x.npz", "--json")
    assert outcome.status == 0
    found = json.loads(outcome.out.splitlines()[-1])
    assert (found["quality"], found["codes"]) == (0.9, load(run).code_count(quality=0.9))
    assert f"quality 0.9 takes {found['codes']} of 16 codes" in outcome.out
    again = run_cli("sample", run, "--refine", tmp_path / "x.npz", "--quality", 1.0, "--out", tmp_path / "y.npz")
    assert "16 of 16 codes" in again.out
    output = json.loads(run_cli("info", run, "--json").out.splitlines()[-1])
    assert len(output["quality"]["rows"]) == 16


def test_at_another_temperature(run: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    outcome = run_cli("evaluate", run, *SMOKE, "--temperature", 0.8)
    assert outcome.status == 0, outcome.err
    found = results.read(run / "evaluation" / "evaluation.json")
    assert {row["temperature"] for row in found.rows if row["series"] in ("samples", "neighbours")} == {0.8}
    assert "40 samples (seed 0, temperature 0.8) against" in outcome.out
    assert not (run / "model" / "quality.json").exists(), "--quality goes by the model's temperature"
    assert run_cli("sample", run, "-n", 2, "--temperature", 0.8, "--codes", 5, "--out", tmp_path / "x.npz").status == 0
    assert run_cli("sample", run, "--refine", tmp_path / "x.npz", "--out", tmp_path / "y.npz").status == 0
    with np.load(tmp_path / "y.npz") as file:
        assert np.array_equal(file["codes"], load(run).sample(2, temperature=0.8).codes)
        assert json.loads(str(file["settings"]))["temperature"] == 0.8


def test_better_quality_table_is_kept(run: Path, run_cli: RunCLI) -> None:
    assert run_cli("evaluate", run, *SMOKE).status == 0
    path = run / "model" / "quality.json"
    path.write_text(path.read_text().replace('"scale": "smoke"', '"scale": "full"'))
    before = path.read_bytes()
    outcome = run_cli("evaluate", run, *SMOKE, "--json")
    assert "keeps its table of full scale" in outcome.out
    assert json.loads(outcome.out.splitlines()[-1])["quality"] is None
    assert path.read_bytes() == before


def test_a_killed_evaluation_goes_on(run: Path, run_cli: RunCLI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(feature_stats, "CHUNK", 10)
    monkeypatch.setattr(feature_stats, "SAVE_SECONDS", 0.0)
    assert run_cli("evaluate", run, *SMOKE, "--out", tmp_path / "whole").status == 0
    save, saves = feature_stats._save, []

    def fail_midway(path: Path, *rest: Any) -> None:
        save(path, *rest)
        if path.name.startswith("samples-"):
            saves.append(path)
            if len(saves) == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(feature_stats, "_save", fail_midway)
        assert run_cli("evaluate", run, *SMOKE, "--out", tmp_path / "parts").status == 130
    assert not (tmp_path / "parts" / "evaluation.json").exists()
    outcome = run_cli("evaluate", run, *SMOKE, "--out", tmp_path / "parts")
    assert outcome.status == 0
    assert "resuming the samples stage at step 40 of 80" in outcome.err
    whole, parts = (results.read(tmp_path / name / "evaluation.json").rows for name in ("whole", "parts"))
    assert [row for row in parts if row["series"] != "speed"] == [row for row in whole if row["series"] != "speed"]
    assert not (tmp_path / "parts" / "progress").exists()


def test_classifier_scores_the_samples(run: Path, run_cli: RunCLI) -> None:
    outcome = run_cli("evaluate", run, *SMOKE, "--classifier", "--json")
    assert outcome.status == 0, outcome.err
    rows = json.loads(outcome.out.splitlines()[-1])["rows"]
    (classifier,) = (row for row in rows if row["series"] == "classifier")
    assert (classifier["examples"], classifier["train"]) == (128, 512)
    assert "trust it less" in classifier["warning"], "two epochs on 512 images"
    seen = [row for row in rows if row["series"] == "classified"]
    assert [(row["fraction"], row["codes"], row["temperature"]) for row in seen] == [(0.25, 4, 1.0), (1.0, 16, 1.0)]
    for row in seen:
        assert 0 <= row["classified"] <= 1
        assert len(row["class_fractions"]) == 10
        assert 0 <= row["recall_classifier"] <= 1
        assert (row["samples"], row["reference"]) == (40, 128)
        assert "fid" not in row
    assert "frechet_classifier" in (run / "evaluation" / "report.html").read_text()
    assert "classifier 8/8" in outcome.err
    again = run_cli("evaluate", run, *SMOKE, "--classifier", "--json")
    assert "classifier 8/8" not in again.err, "it is kept in the cache"
    assert [row for row in json.loads(again.out.splitlines()[-1])["rows"] if row["series"] == "classified"] == seen


def test_a_classifier_needs_labels(run_cli: RunCLI, tmp_path: Path) -> None:
    assert run_cli("train", "mnist", "--scale", "smoke", "--out", tmp_path / "run").status == 0
    sentence = run_cli("evaluate", tmp_path / "run", *SMOKE, "--classifier").sentence
    assert "--classifier" in sentence and "anytime data get mnist" in sentence
    assert not (tmp_path / "run" / "evaluation").exists()


def test_absent_dataset_is_replaced_by_synthetic_images(run_cli: RunCLI, tmp_path: Path) -> None:
    assert run_cli("train", "mnist", "--scale", "smoke", "--out", tmp_path / "run").status == 0
    outcome = run_cli("evaluate", tmp_path / "run", *SMOKE)
    assert outcome.status == 0
    assert "mnist is not here: comparing with synthetic strokes" in outcome.err
    assert "not real data" in results.read(tmp_path / "run" / "evaluation" / "evaluation.json").environment["data"]
    assert "no table for --quality: it needs real data" in outcome.out
    assert not (tmp_path / "run" / "model" / "quality.json").exists()


def test_synthetic_data_do_not_replace_a_quality_table(run: Path, run_cli: RunCLI) -> None:
    """Whatever the scale of the table that is there."""
    assert run_cli("evaluate", run, *SMOKE).status == 0
    before = (run / "model" / "quality.json").read_bytes()
    outcome = run_cli("evaluate", run, *SMOKE, "--dataset", "mnist", "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out.splitlines()[-1])["quality"] is None
    assert (run / "model" / "quality.json").read_bytes() == before


def test_an_evaluation_of_full_scale_is_kept(run: Path, run_cli: RunCLI) -> None:
    assert run_cli("evaluate", run, *SMOKE).status == 0
    path = run / "evaluation" / "evaluation.json"
    path.write_text(path.read_text().replace('"scale": "smoke"', '"scale": "full"'))
    before = path.read_bytes()
    assert f"{path} holds an evaluation of full scale" in run_cli("evaluate", run, *SMOKE).sentence
    assert path.read_bytes() == before


@pytest.mark.parametrize("count", [10, 19, 20])
def test_few_images(count: int, run_cli: RunCLI, tmp_path: Path) -> None:
    """`train` takes ten images; an evaluation needs two that are held out."""
    for number in range(count):
        path = tmp_path / "data" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
    words = ("--data", tmp_path / "data", "--scale", "smoke")
    assert run_cli("train", "folder", *words, "--size", 16, "--out", tmp_path / "run").status == 0
    outcome = run_cli("evaluate", tmp_path / "run", *words, "--samples", 4, "--fractions", "1")
    if count == 20:
        assert outcome.status == 0, outcome.err
    else:
        assert "at least 2 held-out images, and folder has 1; add some to --data" in outcome.sentence
        assert not (tmp_path / "run" / "evaluation").exists()


@pytest.mark.parametrize("names", [[f"{number:02d}" for number in range(10)], ["a/0", "b/0"], ["a/0", "a/1", "b/0", "b/1"]])
def test_few_recordings(names: list[str], run_cli: RunCLI, tmp_path: Path) -> None:
    """One held-out crop, one training crop, or enough of both."""
    for number, name in enumerate(names):
        noise = torch.rand(1, 15_360, generator=torch.Generator().manual_seed(number)) - 0.5
        write_wav(tmp_path / "data" / f"{name}.wav", noise)
    words = ("--data", tmp_path / "data", "--scale", "smoke")
    assert run_cli("train", "folder", *words, "--out", tmp_path / "run").status == 0
    outcome = run_cli("evaluate", tmp_path / "run", *words, "--samples", 4, "--fractions", "1")
    if len(names) == 4:
        assert outcome.status == 0, outcome.err
    else:
        assert "at least 2 " in outcome.sentence and "crops, and folder has 1; add some to --data" in outcome.sentence
