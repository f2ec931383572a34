"""The audio preset at smoke scale: on synthetic tones, and on a tiny dataset of speakers that the test makes."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from anytime.core.errors import UserError
from anytime.core.pause import Pause, Paused
from anytime.core.results import read
from anytime.core.storage import read_tensors
from anytime.data import Dataset
from anytime.data.synthetic import synthetic_audio
from anytime.evaluation import model_card
from anytime.export.bundle import bundle
from anytime.model import load
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.config import RunConfig
from anytime.training.run import train

RunCLI = Callable[..., Any]


@pytest.fixture
def speakers(tmp_path: Path) -> Path:
    """Three speakers in VCTK's layout, one who is listed has no recording, one utterance is shorter than a crop."""
    random = np.random.default_rng(0)
    for index, speaker in enumerate(("p225", "p226", "p227")):
        folder = tmp_path / "vctk" / "wav48" / speaker
        folder.mkdir(parents=True)
        for utterance in range(20):
            rate, seconds = (48_000, 1.5) if utterance else (16_000, 0.5)
            time = np.arange(round(rate * seconds)) / rate
            tone = sum(np.sin(2 * np.pi * k * (90 + 40 * index + 5 * utterance) * time) / k for k in (1, 2, 3))
            soundfile.write(folder / f"{speaker}_{utterance:03d}.wav", 0.01 * tone + 1e-4 * random.normal(size=len(time)), rate)
    (tmp_path / "vctk" / "wav48" / "p300").mkdir()
    return tmp_path / "vctk"


def test_on_speakers(speakers: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("train", "vctk", "--data", speakers, "--scale", "smoke", "--out", run, "--json")
    done = run_cli(*words)
    assert done.status == 0
    assert "no audio of p300" in done.err
    assert "RMS of 0.1" in done.err
    assert "2 shorter ones padded" in done.err or "3 shorter ones padded" in done.err
    facts = json.loads(done.out.splitlines()[-1])
    assert len(facts["error_by_codes"]) == 17
    assert Path(facts["audio"]).stat().st_size == 44 + 2 * 15_360
    model = load(run, "cpu")
    assert model.sample(2, codes=1).data.shape == (2, 1, 15_360)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["pretrain"] * 2 + ["ordered"] * 2 + ["prior"] * 2
    assert lines[5]["train"]["loss"] < lines[4]["train"]["loss"], "the prior learns"
    again = run_cli(*words)
    assert "finished already" in again.err


def test_unordered_reuses_the_first_stage(run_cli: RunCLI, tmp_path: Path) -> None:
    """Without data, on synthetic chirps; the baseline reuses the stages that ordered training has finished."""
    ordered = run_cli("train", "audiomnist", "--scale", "smoke", "--out", tmp_path / "ordered")
    assert ordered.status == 0
    assert "audiomnist is not available: training on synthetic chirps from seed 0" in ordered.err
    words = ("--truncation", "full", "--reuse", tmp_path / "ordered", "--out", tmp_path / "unordered")
    assert run_cli("train", "audiomnist", "--scale", "smoke", *words).status == 0
    shared = [load(tmp_path / name, "cpu").autoencoder.state_dict() for name in ("ordered", "unordered")]
    assert any(not torch.equal(shared[0][name], shared[1][name]) for name in shared[0])
    checked = json.loads(run_cli("info", tmp_path / "unordered", "--check", "--json").out.splitlines()[-1])
    assert all(checked["check"].values())
    assert checked["shape"] == [1, 15_360]
    assert [len(checked["code_stats"][name]) for name in ("error", "gain", "entropy", "bits")] == [17, 16, 16, 16]

    made = bundle(tmp_path / "ordered", "speakers", out=tmp_path / "bundles")
    assert load(made.folder, "cpu").sample(1, codes=2).data.shape == (1, 1, 15_360)
    page = (made.folder / model_card.FILE).read_text()
    assert "| clips | 0.96 s at 16 kHz |" in page and "complete clip" in page
    assert "image" not in page
    with pytest.raises(UserError, match="generates audio"):
        bundle(tmp_path / "ordered", "speakers", evaluations=[tmp_path / "none.json"], out=tmp_path / "bundles")


def small(dataset: Dataset) -> RunConfig:
    return with_scale(preset("audiomnist", "best", dataset.shape), "smoke")


def test_interrupted_finetuning_resumes_exactly(tmp_path: Path) -> None:
    """The discriminator and both optimisers are restored: the model is the same, byte for byte."""
    dataset = synthetic_audio("audiomnist", count=64)
    config = small(dataset)
    asked = itertools.count(1)
    with pytest.raises(Paused, match="finetune stage, step 2"):
        train(config, dataset, tmp_path / "stopped", pause=Pause(18.0, lambda: float(next(asked))))
    train(config, dataset, tmp_path / "stopped")
    train(config, dataset, tmp_path / "whole")
    first, second = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("stopped", "whole"))
    assert first == second
    lines = [json.loads(line) for line in (tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == [s for s in ("pretrain", "ordered", "prior", "finetune") for _ in range(2)]
    before = read_tensors(tmp_path / "whole" / "checkpoints" / "after-prior.safetensors")[0]
    after = load(tmp_path / "whole", "cpu").state_dict()
    changed = {".".join(name.split(".")[:2]) for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"autoencoder.decoder"}, "codes keep their meaning, and the prior is what it was"


def test_images_can_be_finetuned(run_cli: RunCLI, tmp_path: Path) -> None:
    stage = json.dumps({"epochs": 1, "truncation": {"kind": "uniform"}, "batch": 32, "width": 4})
    done = run_cli(
        "train", "digits", "--recipe", "paper", "--scale", "smoke", "--set", f"finetune={stage}", "--out", tmp_path / "run"
    )
    assert done.status == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines].count("finetune") == 1
    checked = json.loads(run_cli("info", tmp_path / "run", "--check", "--json").out.splitlines()[-1])
    assert all(checked["check"].values())


@pytest.fixture
def reproduced(run_cli: RunCLI, once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """`reproduce audio` at smoke scale, on synthetic tones: four runs, trained once."""

    def make(folder: Path) -> None:
        outcome = run_cli("reproduce", "audio", "--scale", "smoke", "--runs-dir", folder, "--out", folder / "results")
        assert outcome.status == 0, outcome.err

    return once("audio-runs", make)


def test_reproduce_audio(reproduced: Path) -> None:
    results = read(reproduced / "results" / "audio" / "audiomnist.json")
    assert {verdict.holds for verdict in results.verdicts} == {None}, "a smoke run decides nothing"
    assert (reproduced / "results" / "audio" / "audiomnist.png").stat().st_size > 10_000
    variants = ("paper-smoke-ordered", "paper-smoke-unordered", "best-smoke-ordered", "best-smoke-unordered")
    for variant in variants:
        clips = sorted(path.name for path in (reproduced / f"audiomnist-{variant}-0" / "audio").iterdir())
        assert len(clips) == 90
        assert [name.rpartition("-")[0] for name in clips[::30]] == ["sample-0.0625", "sample-0.25", "sample-1.0"]
    kept = sorted((reproduced / "results" / "audio" / "audiomnist").iterdir())
    assert len(kept) == 48, "a dozen of each model"
    assert {path.stat().st_size for path in kept} == {44 + 2 * 15_360}
    shared = {(row["audio_classifier"], row["seed"]) for row in results.rows if row["series"] != "held-out data"}
    assert len(shared) == 1, "one classifier for all models"
    assert len({row["first_stage"] for row in results.rows if row["series"] in ("best", "best-unordered")}) == 1
    errors = [row for row in results.rows if row.get("measure") == "error" and row["series"] == "best"]
    assert [row["codes"] for row in errors] == list(range(17))
    assert [row["fraction"] for row in errors if "fraction" in row] == [0.0625, 0.25, 0.5, 1.0]
    speeds = [row for row in results.rows if row.get("measure") == "speed" and row["series"] == "ordered"]
    assert all(row["real_time_factor"] == pytest.approx(row["seconds_p50"] / 0.96) for row in speeds)
    assert "images" not in results.schedule + results.environment["held_out"]


def test_what_was_measured_is_not_measured_again(reproduced: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    """The file with the measurements and the classifier are enough: no run is needed."""
    (tmp_path / "runs").mkdir()
    shutil.copytree(reproduced / "measured", tmp_path / "runs" / "measured")
    again = run_cli("reproduce", "audio", "--scale", "smoke", "--runs-dir", tmp_path / "runs", "--out", tmp_path / "results")
    assert again.status == 0, again.err
    assert again.err.count(": cached in ") == 5
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["measured"]
    first, second = (read(folder / "results" / "audio" / "audiomnist.json").rows for folder in (reproduced, tmp_path))
    assert first == second


def test_a_measurement_of_another_classifier_is_made_again(reproduced: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    path = Path(shutil.copytree(reproduced / "measured", tmp_path / "measured")) / "audio-audiomnist-smoke.json"
    cached = json.loads(path.read_text())
    cached["measurements"]["held-out data"]["facts"]["classifier"] = "another"
    cached["measurements"]["held-out data"]["rows"][0]["classified"] = 2.0
    path.write_text(json.dumps(cached))
    words = ("reproduce", "audio", "--scale", "smoke", "--runs-dir", tmp_path, "--out", tmp_path / "results")
    again = run_cli(*words)
    assert again.status == 0, again.err
    assert f"held-out data: {path} has it with another classifier; it is measured again" in " ".join(again.err.split())
    (row,) = (row for row in read(tmp_path / "results" / "audio" / "audiomnist.json").rows if row["series"] == "held-out data")
    assert row["classified"] <= 1


def test_evaluate(reproduced: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    run, out = reproduced / "audiomnist-best-smoke-ordered-0", tmp_path / "evaluation"
    words = ("evaluate", run, "--scale", "smoke", "--fractions", "0.25,1", "--samples", 16, "--temperature", 0.9, "--out", out)
    done = run_cli(*words, "--json")
    assert done.status == 0, done.err
    rows = json.loads(done.out.splitlines()[-1])["rows"]
    assert {row["series"] for row in rows} == {
        "samples", "reconstructions", "held-out data", "error", "half-way", "bits", "codes", "speed",
    }  # fmt: skip
    sampled = [row for row in rows if row["series"] == "samples"]
    assert [(row["fraction"], row["samples"], row["temperature"]) for row in sampled] == [(0.25, 16, 0.9), (1.0, 16, 0.9)]
    assert all("frechet_digits" in row and len(row["by_digit"]) == 10 for row in sampled)
    assert not any("fid" in row for row in rows)
    page = (out / "report.html").read_text()
    assert page.count("<audio") == 12 and page.count("<figure>") == 8
    assert len(list((out / "audio").iterdir())) == 90
    assert not (out / "progress").exists()


def test_any_folder_of_audio(speakers: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    """Trained and evaluated: without labels, on the features of the transform classifier."""
    assert run_cli("train", "folder", "--data", speakers / "wav48", "--scale", "smoke", "--out", tmp_path / "run").status == 0
    words = (
        "--data",
        speakers / "wav48",
        "--scale",
        "smoke",
        "--samples",
        8,
        "--fractions",
        "1",
        "--out",
        tmp_path / "evaluation",
    )
    done = run_cli("evaluate", tmp_path / "run", *words, "--json")
    assert done.status == 0, done.err
    rows = json.loads(done.out.splitlines()[-1])["rows"]
    [sampled] = [row for row in rows if row["series"] == "samples"]
    assert "frechet_audio" in sampled and "classified" not in sampled


def test_image_and_audio_experiments_are_separate(run_cli: RunCLI) -> None:
    assert "is about images, which vctk does not hold" in run_cli("reproduce", "ordering", "--dataset", "vctk").err
    assert (
        "is about audio, which mnist does not hold; use --dataset audiomnist"
        in run_cli("reproduce", "audio", "--dataset", "mnist").err
    )
