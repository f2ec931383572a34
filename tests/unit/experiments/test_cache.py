"""Measurements are cached, and reused only if all their facts are the same."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.core.errors import UserError
from anytime.core.pause import Pause, Paused
from anytime.core.progress import SilentReporter
from anytime.core.results import Row, Verdict
from anytime.experiments.cache import Measurement, MeasurementCache, TrainingRecord
from anytime.experiments.runner import ExperimentContext, RunMeasurement, Runner

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
    elsewhere = Measurement(here.cache.measurements()["here"].facts, [], here.environments[0] | {"hardware": "NVIDIA H200"})
    cache.store("there", elsewhere)
    again = runner(tmp_path)
    again.measure_data("there", {}, list)
    assert again.results([], []).environment["hardware"] == "NVIDIA H200"
    again.measure_data("here", {}, list)
    assert again.results([], []).environment["hardware"].startswith("NVIDIA H200, CPU")


def test_synthetic_data_decides_nothing(tmp_path: Path) -> None:
    (verdict,) = runner(tmp_path).results([], [Verdict("claim", True, "evidence", "paper")]).verdicts
    assert verdict == Verdict("claim", None, "evidence", "paper")


def _store_many(path: Path, process: int) -> None:
    for number in range(STORED):
        MeasurementCache(path).store(f"{process} {number}", MEASUREMENT)


STORED = 20


def test_processes_that_store_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "book.json"
    processes = [multiprocessing.get_context("fork").Process(target=_store_many, args=(path, n)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(MeasurementCache(path).measurements()) == 3 * STORED


def test_what_was_measured_elsewhere_is_found_and_copied(tmp_path: Path) -> None:
    there, here = runner(tmp_path / "there"), runner(tmp_path / "here")
    rows = there.measure_data("pixels", {"batch": 10}, lambda: [{"seconds": 1.5}])
    here.context = replace(here.context, kept=tmp_path / "there" / "measured")
    assert here.measure_data("pixels", {"batch": 10}, lambda: pytest.fail("measured again")) == rows
    assert here.cache.measurements() == there.cache.measurements()
    assert here.measure_data("pixels", {"batch": 20}, lambda: [{"seconds": 2.5}]) == [{"seconds": 2.5}]


def test_facts_that_count_as_equal(tmp_path: Path) -> None:
    """A CPU finds what a GPU measured with TF32, and prefers its own."""
    here = runner(tmp_path)
    work = {"gpu": lambda: ([{"fid": 1.0}], None), "cpu": lambda: ([{"fid": 2.0}], None)}
    here._measure("a", [{"network": "gpu"}], work["gpu"])
    assert here._measure("a", [{"network": "cpu"}, {"network": "gpu"}], work["cpu"]).rows == [{"fid": 1.0}]
    assert here._measure("b", [{"network": "cpu"}, {"network": "gpu"}], work["cpu"]).rows == [{"fid": 2.0}]


class Recorder(SilentReporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.texts = list[str]()

    def say(self, text: str) -> None:
        self.texts.append(text)


def test_cached_measures_nothing_and_says_why(tmp_path: Path) -> None:
    here, recorder = runner(tmp_path), Recorder()
    here.measure_data("pixels", {"batch": 10}, lambda: [{"seconds": 1.5}])
    here.context = replace(here.context, cached=True, reporter=recorder)
    assert here.measure_data("pixels", {"batch": 10}, lambda: pytest.fail("measured")) == [{"seconds": 1.5}]
    with pytest.raises(UserError, match=r"speed has no cached measurement of pixels in .*measured that fits this code"):
        here.measure_data("pixels", {"batch": 20}, lambda: pytest.fail("measured"))
    assert any("has it with another batch" in text for text in recorder.texts)


def test_cached_trains_nothing(tmp_path: Path) -> None:
    here = runner(tmp_path)
    here.context = replace(here.context, cached=True)
    measurement = RunMeasurement("ordered", 0, lambda model: pytest.fail("measured"), {"batch": 10})
    with pytest.raises(UserError, match="no cached measurement of mnist-paper-short-ordered-0"):
        here.measure_runs([measurement])
    assert not list(tmp_path.glob("mnist-*"))


def test_a_measurement_of_another_commit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYTIME_COMMIT", "1234567")
    runner(tmp_path).measure_data("pixels", {"batch": 10}, lambda: [{"seconds": 1.5}])
    monkeypatch.setenv("ANYTIME_COMMIT", "89abcde")
    here, recorder = runner(tmp_path), Recorder()
    here.context = replace(here.context, reporter=recorder)
    here.measure_data("pixels", {"batch": 10}, lambda: pytest.fail("measured again"))
    assert "measured at commit 1234567 (this code: 89abcde)" in recorder.texts[-1]
