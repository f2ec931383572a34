"""The announced steps are those that are trained; data that is too small is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anytime import __version__, data
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.pause import NEVER
from anytime.core.progress import SilentReporter
from anytime.experiments.cache import Measurement, MeasurementCache
from anytime.experiments.eta import eta, remaining_steps, seconds_per_step
from anytime.experiments.runner import ExperimentContext, RunMeasurement, Runner
from anytime.experiments.variants import PlannedRun, ensure_trained, plan
from anytime.training.log import read
from anytime.training.run_dir import config_identity, data_digest

CPU = torch.device("cpu")


class RecordingReporter(SilentReporter):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.synthetic_images("mnist", (1, 28, 28), count=64)


def plans(dataset: data.Dataset, runs: Path, *variants: str) -> list[PlannedRun]:
    return [plan(variant, dataset, "smoke", 0, "cpu", runs) for variant in variants]


def test_announced_steps_match_the_log(dataset: data.Dataset, tmp_path: Path) -> None:
    ordered, lstm = plans(dataset, tmp_path, "ordered", "lstm")
    assert remaining_steps(ordered, dataset, ()) == {"pretrain": 4, "ordered": 4, "prior": 4}
    assert remaining_steps(lstm, dataset, {ordered.run_dir.name}) == {"prior": 4}, "the ordered run is trained before it"
    assert remaining_steps(lstm, dataset, ()) == {"pretrain": 4, "ordered": 4, "prior": 4}
    assert seconds_per_step(lstm, "prior") is None
    text = eta([ordered, lstm], dataset)
    assert text == (
        "2 runs to train, 16 steps: mnist-paper-smoke-ordered-0 (pretrain 4 + ordered 4 + prior 4), "
        "mnist-paper-smoke-lstm-0 (prior 4)"
    )
    ensure_trained(ordered, dataset, CPU, SilentReporter(), NEVER)
    last = {line["stage"]: line["step"] for line in read(ordered.run_dir / "metrics.jsonl")}
    assert last == {"pretrain": 4, "ordered": 4, "prior": 4}
    assert eta([ordered], dataset) == "nothing to train"
    assert seconds_per_step(lstm, "prior") is not None
    assert eta([ordered, lstm], dataset).startswith("1 run to train, 4 steps: mnist-paper-smoke-lstm-0 (prior 4); about 0.")


def runner(experiment: str, dataset: data.Dataset, runs: Path) -> tuple[Runner, list[str]]:
    reporter = RecordingReporter()
    context = ExperimentContext(dataset=dataset, scale="short", device=CPU, runs=runs, reporter=reporter)
    return Runner(experiment, context), reporter.messages


def measurements(*variants: str, **facts: str) -> list[RunMeasurement]:
    return [RunMeasurement(variant, 0, list, facts) for variant in variants]


def test_experiment_announces_training(dataset: data.Dataset, tmp_path: Path) -> None:
    vae, messages = runner("vae", dataset, tmp_path)
    vae.announce(measurements("ordered-vae", "standard-vae"))
    assert messages == [
        "2 runs to train, 160 steps: mnist-vae-short-ordered-vae-0 (pretrain 40 + ordered 60), "
        "mnist-vae-short-standard-vae-0 (ordered 60)"
    ]


def test_measurement_with_other_facts_is_not_reused(dataset: data.Dataset, tmp_path: Path) -> None:
    vae, messages = runner("vae", dataset, tmp_path)
    run = config_identity(vae.plan("standard-vae", 0).config)
    known = {"hardware": "this", "run": run, "data": data_digest(dataset), "anytime": __version__}
    vae.cache.store("standard-vae 0", Measurement(known, [], {}))
    for hardware in ("this", "that"):
        vae.announce(measurements("standard-vae", hardware=hardware))
    assert messages[0] == "nothing to train" and messages[1].startswith("1 run to train")


def test_too_small_dataset_is_refused_before_training(dataset: data.Dataset, tmp_path: Path) -> None:
    regularization, _ = runner("regularization", dataset, tmp_path / "runs")
    with pytest.raises(UserError, match="trains on 5,000 images, more than the 64 of mnist; choose a larger `dataset`"):
        regularization.measure_runs(measurements("ordered", "ordered-5k"))
    assert not (tmp_path / "runs").exists()


def test_all_measurements_of_a_run_are_of_one_training(dataset: data.Dataset, tmp_path: Path) -> None:
    """One of two measurements was made elsewhere, and the run is trained again here: both are measured here."""
    measured, there = list[str](), MeasurementCache(tmp_path / "kept" / "ordering-mnist-smoke.json")

    def measurement(part: str) -> RunMeasurement:
        return RunMeasurement("ordered", 0, lambda model: measured.append(part) or [{"part": part}], {}, part=part)

    reporter = RecordingReporter()
    context = ExperimentContext(
        dataset=dataset, scale="smoke", device=CPU, runs=tmp_path / "runs", kept=tmp_path / "kept", reporter=reporter
    )
    both = [measurement("a"), measurement("b")]
    run = Runner("ordering", context).plan("ordered", 0)
    facts = Runner("ordering", context)._run_facts(both[0], run)[0] | {"anytime": __version__}
    there.store("ordered 0, a", Measurement(facts, [{"part": "a", "model": "another"}], environment(CPU)))
    assert Runner("ordering", context).measure_runs(both[:1]) == [{"part": "a", "model": "another"}], "the only one is taken"
    assert measured == []

    (tmp_path / "runs" / "measured" / "ordering-mnist-smoke.json").unlink()
    rows = Runner("ordering", context).measure_runs(both)
    assert measured == ["a", "b"]
    assert len({row["model"] for row in rows}) == 1 and rows[0]["model"] != "another"
    assert any("has it of another training; it is measured again" in text for text in reporter.messages)
    assert Runner("ordering", context).measure_runs(both) == rows
    assert measured == ["a", "b"], "cached, of the run that is here"

    (tmp_path / "runs" / "measured" / "ordering-mnist-smoke.json").unlink()
    again = Runner("ordering", context).measure_runs(both)
    assert measured == ["a", "b", "a", "b"], "the kept one is not of the finished run"
    assert again == rows
