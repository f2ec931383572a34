"""What is said to be trained is what then is trained; data that is too small is told before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.core.errors import UserError
from anytime.core.pause import NEVER
from anytime.experiments.cache import Piece
from anytime.experiments.eta import forecast, pace, steps_to_do
from anytime.experiments.runner import Setting, Workbench
from anytime.experiments.runs import Plan, plan, trained
from anytime.training.log import Silent, read
from anytime.training.run_dir import data_digest, what

CPU = torch.device("cpu")


class Listening(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.synthetic("mnist", (1, 28, 28), count=64)


def plans(dataset: data.Dataset, runs: Path, *kinds: str) -> list[Plan]:
    return [plan(kind, dataset, "smoke", 0, "cpu", runs) for kind in kinds]


def test_steps_are_those_of_the_log(dataset: data.Dataset, tmp_path: Path) -> None:
    ordered, lstm = plans(dataset, tmp_path, "ordered", "lstm")
    assert steps_to_do(ordered, dataset, ()) == {"pretrain": 4, "ordered": 4, "prior": 4}
    assert steps_to_do(lstm, dataset, {ordered.folder.name}) == {"prior": 4}, "the ordered run is trained before it"
    assert steps_to_do(lstm, dataset, ()) == {"pretrain": 4, "ordered": 4, "prior": 4}
    assert pace(lstm, "prior") is None
    text = forecast([ordered, lstm], dataset)
    assert text == (
        "2 runs to train, 16 steps: mnist-paper-smoke-ordered-0 (pretrain 4 + ordered 4 + prior 4), "
        "mnist-paper-smoke-lstm-0 (prior 4)"
    )
    trained(ordered, dataset, CPU, Silent(), NEVER)
    last = {line["stage"]: line["step"] for line in read(ordered.folder / "metrics.jsonl")}
    assert last == {"pretrain": 4, "ordered": 4, "prior": 4}
    assert forecast([ordered], dataset) == "nothing to train"
    assert pace(lstm, "prior") is not None
    assert forecast([ordered, lstm], dataset).startswith(
        "1 run to train, 4 steps: mnist-paper-smoke-lstm-0 (prior 4); about 0."
    )


def test_an_experiment_says_it_first(dataset: data.Dataset, tmp_path: Path) -> None:
    ear = Listening()
    bench = Workbench("vae", Setting(dataset=dataset, scale="short", device=CPU, runs=tmp_path, reporter=ear))
    bench.announce([("ordered-vae", 0), ("standard-vae", 0)])
    assert ear.said == [
        "2 runs to train, 160 steps: mnist-vae-short-ordered-vae-0 (pretrain 40 + ordered 60), "
        "mnist-vae-short-standard-vae-0 (ordered 60)"
    ]


def test_what_was_measured_under_other_facts_is_trained_again(dataset: data.Dataset, tmp_path: Path) -> None:
    ear = Listening()
    bench = Workbench("vae", Setting(dataset=dataset, scale="short", device=CPU, runs=tmp_path, reporter=ear))
    known = {"run": what(bench.plan("standard-vae", 0).config), "data": data_digest(dataset), "hardware": "this"}
    bench.notebook.keep("standard-vae 0", Piece(known, [], {}, {}))
    for hardware in ("this", "that"):
        bench.announce([("standard-vae", 0)], facts={"hardware": hardware})
    assert ear.said[0] == "nothing to train" and ear.said[1].startswith("1 run to train")


def test_data_too_small_for_a_subset_is_told_before_any_work(dataset: data.Dataset, tmp_path: Path) -> None:
    bench = Workbench("regularization", Setting(dataset=dataset, scale="short", device=CPU, runs=tmp_path / "runs"))
    with pytest.raises(
        UserError, match="trains on 5,000 pictures, more than the 64 of mnist; choose a larger set with --dataset"
    ):
        bench.announce([("ordered", 0), ("ordered-5k", 0)])
    assert not (tmp_path / "runs").exists()
