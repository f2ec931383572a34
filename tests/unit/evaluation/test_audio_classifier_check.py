"""The measuring of the recogniser, on tones in place of voices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.data.loader import to_float
from anytime.data.synthetic import synthetic_audio
from anytime.evaluation import audio_classifier_check
from anytime.evaluation.audio_classifier_check import (
    MAX_FALSE_POSITIVES,
    NOISE_LEVELS,
    TRAINED_NEGATIVES,
    holds,
    main,
    non_digits,
)
from anytime.metrics.audio_features import MIN_DIGIT_ACCURACY, load_or_train_audio_features

GOOD = [
    {"series": "speakers", "part": "validation", "accuracy": 0.0},
    {"series": "speakers", "part": "test", "accuracy": MIN_DIGIT_ACCURACY},
    {"series": "non-digits", "in_training": True, "classified": MAX_FALSE_POSITIVES},
    {"series": "non-digits", "in_training": False, "classified": 1.0},
    {"series": "noise", "level": 0.0, "frechet_digits": 1.0},
    {"series": "noise", "level": 0.003, "frechet_digits": 3.0},
    {"series": "noise", "level": 0.01, "frechet_digits": 2.0},
    {"series": "noise", "level": 0.03, "frechet_digits": 4.0},
]


def test_what_is_asked() -> None:
    assert list(holds(GOOD, "frechet_digits").values()) == [True] * 4
    worse = {
        1: {"accuracy": MIN_DIGIT_ACCURACY - 0.01},
        2: {"classified": 2 * MAX_FALSE_POSITIVES},
        5: {"frechet_digits": 1.0},
        7: {"frechet_digits": 2.0},
    }
    for place, (row, change) in enumerate(worse.items()):
        found = holds([*GOOD[:row], {**GOOD[row], **change}, *GOOD[row + 1 :]], "frechet_digits")
        assert [not held for held in found.values()] == [i == place for i in range(4)]


def test_non_digits_match_loudness() -> None:
    x = to_float(synthetic_audio("tones", count=32).held_out)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = non_digits(x)
    assert set(TRAINED_NEGATIVES) < set(found)
    for kind, sounds in found.items():
        assert sounds.shape == x.shape
        loud = float(sounds.square().mean().sqrt())
        assert loud == 0 if kind == "silence" else 0.05 < loud < 0.2, kind
        assert not torch.equal(sounds, x)


def test_it_writes_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = synthetic_audio("tones", count=64)
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path))
    monkeypatch.setattr(audio_classifier_check.data, "load", lambda name, data: dataset)
    monkeypatch.setattr(
        audio_classifier_check, "ears_for", lambda dataset, device: load_or_train_audio_features(dataset, device, smoke=True)
    )
    assert main(["tones", "--device", "cpu", "--data", str(tmp_path)]) == 1, "two epochs teach too little"
    told = json.loads(capsys.readouterr().out)
    assert told["network"]["parameters"] > 0 and told["network"]["training_seconds"] > 0
    assert told["command"] == "python -m anytime.evaluation.audio_classifier_check tones --data DIR"
    parts = [row["part"] for row in told["rows"] if row["series"] == "speakers"]
    assert parts == ["validation", "test"]
    noise = [row for row in told["rows"] if row["series"] == "noise"]
    assert [row["level"] for row in noise] == list(NOISE_LEVELS)
    assert noise[0]["accuracy"] == [row for row in told["rows"] if row["series"] == "speakers"][1]["accuracy"]
    assert noise[0]["frechet_digits"] < noise[-1]["frechet_digits"]
    assert all(0 <= row["classified"] <= 1 for row in told["rows"])


def test_a_set_without_spoken_digits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digits", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "hearing: digits holds no spoken digits: name a set that does, such as audiomnist\n"
    assert data.load("digits").labels is None
