"""Measurements are cached, and reused only if all their facts are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.core.errors import UserError
from anytime.core.pause import Pause, Paused
from anytime.core.results import Row, Verdict
from anytime.experiments.cache import Measurement, MeasurementCache, TrainingRecord
from anytime.experiments.runner import ExperimentContext, Runner

RECORD = TrainingRecord("anytime train mnist", 64, "CPU", None, "2026-01-01", "float32")
MEASUREMENT = Measurement({"samples": 10, "fractions": (0.2, 1.0)}, [{"fid": 3.15}], {"torch": "2.13"}, RECORD)


def test_measurement_is_found_by_its_facts(tmp_path: Path) -> None:
    cache = MeasurementCache(tmp_path / "deep" / "book.json")
    assert cache.find("ordered 0", MEASUREMENT.facts) is None
    assert cache.store("ordered 0", MEASUREMENT).rows == MEASUREMENT.rows
    again = MeasurementCache(cache.path)
    found = again.find("ordered 0", MEASUREMENT.facts)
    assert found is not None and (found.rows, found.training) == ([{"fid": 3.15}], RECORD)
    assert again.find("ordered 0", MEASUREMENT.facts | {"samples": 11}) is None
    assert again.find("ordered 1", MEASUREMENT.facts) is None


def test_other_measurements_are_preserved(tmp_path: Path) -> None:
    first, second = MeasurementCache(tmp_path / "book.json"), MeasurementCache(tmp_path / "book.json")
    first.store("a", MEASUREMENT)
    second.store("b", MEASUREMENT)
    assert first.find("b", MEASUREMENT.facts) is not None
    assert second.find("a", MEASUREMENT.facts) is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"format": 0}', "format 0"),
        ('{"format": 1}', "remove it"),
        ('{"format": 1, "pieces": {"a": {"rows": []}}}', "remove it"),
    ],
)
def test_cache_of_another_version_is_refused(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "book.json").write_text(text)
    with pytest.raises(UserError, match=named):
        MeasurementCache(tmp_path / "book.json")


def runner(tmp_path: Path, pause: Pause | None = None) -> Runner:
    dataset = data.synthetic_images("mnist", (1, 28, 28), count=16)
    context = ExperimentContext(
        dataset=dataset, scale="short", device=torch.device("cpu"), runs=tmp_path, pause=pause or Pause()
    )
    return Runner("speed", context)


def test_runner_measures_once_then_pauses(tmp_path: Path) -> None:
    asked: list[int] = []

    def measure() -> list[Row]:
        asked.append(1)
        return [{"series": "pixels", "seconds": 1.5}]

    with pytest.raises(Paused, match="pixels is measured"):
        runner(tmp_path, Pause(0.0)).measure_data("pixels", {"batch": 10}, measure)
    found = runner(tmp_path, Pause(0.0)).measure_data("pixels", {"batch": 10}, measure)
    assert (found, len(asked)) == ([{"series": "pixels", "seconds": 1.5}], 1)
    runner(tmp_path).measure_data("pixels", {"batch": 20}, measure)
    assert len(asked) == 2


def test_results_name_the_environment_of_the_measurements(tmp_path: Path) -> None:
    cache = runner(tmp_path).cache
    here = runner(tmp_path)
    here.measure_data("here", {}, list)
    elsewhere = Measurement(here.cache._measurements()["here"].facts, [], here.environments[0] | {"hardware": "NVIDIA H200"})
    cache.store("there", elsewhere)
    again = runner(tmp_path)
    again.measure_data("there", {}, list)
    assert again.results([], []).environment["hardware"] == "NVIDIA H200"
    again.measure_data("here", {}, list)
    assert again.results([], []).environment["hardware"].startswith("NVIDIA H200, CPU")


def test_synthetic_data_decides_nothing(tmp_path: Path) -> None:
    (verdict,) = runner(tmp_path).results([], [Verdict("claim", True, "evidence", "paper")]).verdicts
    assert verdict == Verdict("claim", None, "evidence", "paper")
