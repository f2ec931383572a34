"""The audio preset at smoke scale: on synthetic tones, and on a tiny set of voices that the test makes itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from anytime.bundle import bundle
from anytime.errors import UserError
from anytime.evaluation import card
from anytime.model import load

Here = Callable[..., Any]


@pytest.fixture
def voices(tmp_path: Path) -> Path:
    """Three speakers in VCTK's layout, one who is listed has no sound, one utterance is shorter than a crop."""
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


def test_on_voices(voices: Path, here: Here, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("train", "vctk", "--data", voices, "--scale", "smoke", "--out", run, "--json")
    done = here(*words)
    assert done.status == 0
    assert "no sound of p300" in done.err
    assert "RMS of 0.1" in done.err
    assert "2 shorter ones padded" in done.err or "3 shorter ones padded" in done.err
    facts = json.loads(done.out.splitlines()[-1])
    assert len(facts["error_by_codes"]) == 17
    assert Path(facts["sound"]).stat().st_size == 44 + 2 * 15_360
    model = load(run, "cpu")
    assert model.sample(2, codes=1).data.shape == (2, 1, 15_360)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["pretrain"] * 2 + ["ordered"] * 2 + ["prior"] * 2
    assert lines[5]["train"]["loss"] < lines[4]["train"]["loss"], "the prior learns"
    again = here(*words)
    assert "finished already" in again.err


def test_unordered_shares_the_first_stage(here: Here, tmp_path: Path) -> None:
    """Without data, on synthetic tones; the baseline takes over what ordered training has done already."""
    ordered = here("train", "audiomnist", "--scale", "smoke", "--out", tmp_path / "ordered")
    assert ordered.status == 0
    assert "audiomnist is not here: training on synthetic gliding tones from seed 0" in ordered.err
    words = ("--truncation", "full", "--share", tmp_path / "ordered", "--out", tmp_path / "unordered")
    assert here("train", "audiomnist", "--scale", "smoke", *words).status == 0
    shared = [load(tmp_path / name, "cpu").autoencoder.state_dict() for name in ("ordered", "unordered")]
    assert any(not torch.equal(shared[0][name], shared[1][name]) for name in shared[0])
    checked = json.loads(here("info", tmp_path / "unordered", "--check", "--json").out.splitlines()[-1])
    assert all(checked["check"].values())
    assert checked["shape"] == [1, 15_360]
    assert [len(checked["order"][name]) for name in ("error", "gain", "entropy", "bits")] == [17, 16, 16, 16]

    made = bundle(tmp_path / "ordered", "voices", out=tmp_path / "shelf")
    assert load(made.folder, "cpu").sample(1, codes=2).data.shape == (1, 1, 15_360)
    page = (made.folder / card.FILE).read_text()
    assert "| sounds | 0.96 s at 16 kHz |" in page and "complete sound" in page
    assert "icture" not in page
    with pytest.raises(UserError, match="makes sound"):
        bundle(tmp_path / "ordered", "voices", evaluation=tmp_path / "none.json", out=tmp_path / "shelf")
