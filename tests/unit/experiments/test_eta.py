"""The announced steps are those that are trained; data that is too small is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anytime import __version__, data
from anytime.core.errors import UserError
from anytime.core.pause import NEVER
from anytime.core.progress import SilentReporter
from anytime.experiments.cache import Measurement
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
