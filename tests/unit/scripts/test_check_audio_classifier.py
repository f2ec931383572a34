"""The check of the audio classifier, on tones in place of speech."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import check_audio_classifier
from anytime import data
from anytime.data.loader import to_float
from anytime.data.synthetic import synthetic_audio
from anytime.evaluation.classifier_training import MIN_DIGIT_ACCURACY, load_or_train_audio_features
from check_audio_classifier import (
    MAX_FALSE_POSITIVES,
    NOISE_LEVELS,
    TRAINED_NEGATIVES,
    holds,
    main,
    non_digits,
)

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
    found = non_digits(x, torch.Generator().manual_seed(0))
    assert set(TRAINED_NEGATIVES) < set(found)
    for kind, clips in found.items():
        assert clips.shape == x.shape
        loud = float(clips.square().mean().sqrt())
        assert loud == 0 if kind == "silence" else 0.05 < loud < 0.2, kind
        assert not torch.equal(clips, x)


def test_it_writes_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = synthetic_audio("tones", count=64)
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path))
    monkeypatch.setattr(check_audio_classifier.data, "load", lambda name, data: dataset)
    monkeypatch.setattr(
        check_audio_classifier,
        "load_or_train_audio_features",
        lambda dataset, device: load_or_train_audio_features(dataset, device, smoke=True),
    )
    assert main(["tones", "--device", "cpu", "--data", str(tmp_path)]) == 1, "two epochs teach too little"
    found = json.loads(capsys.readouterr().out)
    assert found["network"]["parameters"] > 0 and found["network"]["training_seconds"] > 0
    assert found["command"] == "python scripts/check_audio_classifier.py tones --data DIR"
    parts = [row["part"] for row in found["rows"] if row["series"] == "speakers"]
    assert parts == ["validation", "test"]
    noise = [row for row in found["rows"] if row["series"] == "noise"]
    assert [row["level"] for row in noise] == list(NOISE_LEVELS)
    assert noise[0]["accuracy"] == [row for row in found["rows"] if row["series"] == "speakers"][1]["accuracy"]
    assert noise[0]["frechet_digits"] < noise[-1]["frechet_digits"]
    assert all(0 <= row["classified"] <= 1 for row in found["rows"])


def test_a_set_without_spoken_digits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digits", "--device", "cpu"]) == 2
    assert (
        capsys.readouterr().err
        == "check_audio_classifier: digits has no spoken digits; name a dataset that has, such as audiomnist\n"
    )
    assert data.load("digits").labels is None
