"""Measurements of several machines are merged: added, replaced aloud, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import merge_measurements
from anytime.experiments.cache import Measurement, MeasurementCache, TrainingRecord

MEASUREMENT = Measurement({"samples": 10, "data": "a"}, [{"fid": 3.15}], {"torch": "2.13", "commit": "abc1234"})


def store(folder: Path, **measurements: Measurement) -> Path:
    for name, measurement in measurements.items():
        MeasurementCache(folder / "vae-cifar10-short.json").store(name, measurement)
    return folder


def test_measurements_are_added_to_those_of_earlier_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, kept = store(tmp_path / "1", a=MEASUREMENT), store(tmp_path / "2", b=MEASUREMENT), tmp_path / "kept"
    assert merge_measurements.main([str(first), "--into", str(kept)]) == 0
    assert merge_measurements.main([str(second), str(first), "--into", str(kept)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"vae-cifar10-short.json, {name}: added" for name in ("a", "b")]
    assert list(MeasurementCache(kept / "vae-cifar10-short.json").measurements()) == ["a", "b"]


def test_other_facts_replace_and_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = store(tmp_path / "kept", a=MEASUREMENT)
    new = replace(MEASUREMENT, facts={"samples": 20, "data": "a"}, rows=[{"fid": 3.0}])
    assert merge_measurements.main([str(store(tmp_path / "1", a=new)), "--into", str(kept)]) == 0
    assert "a: replaced: other samples" in capsys.readouterr().out
    assert MeasurementCache(kept / "vae-cifar10-short.json").measurements()["a"].rows == [{"fid": 3.0}]


def test_two_results_of_one_measurement_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, new = store(tmp_path / "kept", a=MEASUREMENT), replace(MEASUREMENT, rows=[{"fid": 3.0}])
    assert merge_measurements.main([str(store(tmp_path / "1", a=new)), "--into", str(kept)]) == 2
    assert "two measurements of 'a'; remove one of them" in capsys.readouterr().err
    copy = store(tmp_path / "copy", a=MEASUREMENT)
    assert merge_measurements.main([str(tmp_path / "1"), "--into", str(copy), "--newer"]) == 0
    assert "a: replaced: other rows" in capsys.readouterr().out
    assert MeasurementCache(copy / "vae-cifar10-short.json").measurements()["a"].rows == [{"fid": 3.0}]
    assert MeasurementCache(kept / "vae-cifar10-short.json").measurements()["a"].rows == MEASUREMENT.rows
    (tmp_path / "empty").mkdir()
    assert merge_measurements.main([str(tmp_path / "empty"), "--into", str(kept)]) == 2
    assert "holds no measurements" in capsys.readouterr().err


def test_equal_numbers_of_another_machine_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = store(tmp_path / "kept", a=MEASUREMENT)
    again = replace(MEASUREMENT, environment={"torch": "2.13", "commit": "abc1234", "date": "2026-11-19"})
    assert merge_measurements.main([str(store(tmp_path / "1", a=again)), "--into", str(kept)]) == 0
    assert capsys.readouterr().out == "nothing new\n"
    assert MeasurementCache(kept / "vae-cifar10-short.json").measurements()["a"] == MEASUREMENT


@pytest.mark.parametrize(
    ("commit", "trained", "words"),
    [
        ("abc1234-dirty", "abc1234", "with uncommitted changes"),
        (None, "abc1234", "with an unknown version of the code"),
        ("abc1234", "abc1234-dirty", "with uncommitted changes"),
        ("abc1234", None, "with an unknown version of the code"),
    ],
)
def test_measurements_that_nobody_could_repeat_are_refused(
    commit: str | None, trained: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = TrainingRecord("anytime train mnist", 64, "CPU", trained, "2026-01-01", "float32")
    dirty = replace(MEASUREMENT, environment={"commit": commit}, training=training)
    kept, folder = tmp_path / "kept", store(tmp_path / "1", a=dirty)
    assert merge_measurements.main([str(folder), "--into", str(kept)]) == 2
    assert f"'a' was made {words}; measure it again from a commit" in capsys.readouterr().err
    assert not (kept / "vae-cifar10-short.json").exists()
    (folder / "vae-cifar10-short.json").rename(folder / "vae-cifar10-smoke.json")
    assert merge_measurements.main([str(folder), "--into", str(kept)]) == 0, "numbers of smoke scale mean nothing"
