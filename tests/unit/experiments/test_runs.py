"""Runs by name: each is what the command beside it trains, and is trained once."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.cli import train as train_verb
from anytime.cli.options import parse
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, Pause, Paused
from anytime.data.synthetic import synthetic_sounds
from anytime.experiments import runs
from anytime.experiments.registry import EXPERIMENTS
from anytime.experiments.variants import tailored
from anytime.training.log import Silent, read
from anytime.training.run_dir import Paths, shared_stages

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.synthetic("mnist", (1, 28, 28), count=64)


@pytest.fixture(scope="module")
def sounds() -> data.Dataset:
    return synthetic_sounds("audiomnist", count=8)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("scale", ["smoke", "short", "full"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [("mnist", kind) for kind in runs.KINDS if not kind.startswith("best")]
    + [("audiomnist", kind) for kind in ("ordered", "unordered", "best", "best-unordered")],
)
def test_the_command_trains_the_same(
    dataset: data.Dataset, sounds: data.Dataset, tmp_path: Path, name: str, kind: str, scale: str, device: str
) -> None:
    dataset = sounds if name == "audiomnist" else dataset
    run = runs.plan(kind, dataset, scale, 3, device, tmp_path, local=True)  # type: ignore[arg-type]
    words = shlex.split(run.command)
    assert words[:3] == ["anytime", "train", name]
    arguments = parse(train_verb.Arguments, words[2:], "anytime train", "")
    assert train_verb._config(arguments, dataset, torch.device(device)) == run.config
    assert arguments.out is not None and run.folder == tmp_path / arguments.out.name
    assert str(arguments.data) == "DIR"
    assert (run.share is None) == (arguments.share is None)


def test_names_tell_runs_apart() -> None:
    choices = [(kind, scale, seed) for kind in runs.KINDS for scale in ("smoke", "short", "full") for seed in (0, 1)]
    names = {runs._name(kind, "mnist", scale, seed) for kind, scale, seed in choices}  # type: ignore[arg-type]
    assert len(names) == len(choices)
    assert {"mnist-paper-short-ordered-0", "mnist-best-full-unordered-1"} <= names


def test_epochs_beside_the_papers(dataset: data.Dataset, tmp_path: Path) -> None:
    short = runs.plan("ordered", dataset, "short", 0, "cpu", tmp_path)
    assert (short.epochs, short.full_epochs) == ("40 + 60 + 20", "200 + 200 + 50")
    full = runs.plan("ordered", dataset, "full", 0, "cpu", tmp_path)
    assert full.epochs == full.full_epochs


def test_a_run_is_trained_once_and_then_taken_over(dataset: data.Dataset, tmp_path: Path) -> None:
    run = runs.plan("ordered", dataset, "smoke", 0, "cpu", tmp_path)
    with pytest.raises(Paused, match="mnist-paper-smoke-ordered-0 is trained"):
        # The clock stands still until the run is there: the pause comes after it, and with it saved.
        pause = Pause(1.0, lambda: float(Paths(run.folder).finished))
        runs.trained(run, dataset, CPU, Silent(), pause)
    before = (run.folder / "metrics.jsonl").read_bytes()
    told = runs.trained(run, dataset, CPU, Silent(), Pause(0.0))
    assert (run.folder / "metrics.jsonl").read_bytes() == before
    assert told["command"] == run.command
    assert (told["examples"], told["precision"]) == (64, "float32")
    # Computed in another way it is still that run; of another kind or on other data it is not.
    runs.trained(replace(run, config=replace(run.config, precision="bfloat16", compile=True)), dataset, CPU, Silent(), NEVER)
    with pytest.raises(UserError, match="holds a run with seed = 0, not 1"):
        runs.trained(replace(run, config=replace(run.config, seed=1)), dataset, CPU, Silent(), NEVER)
    with pytest.raises(UserError, match=r"was begun on other data .* choose another --runs-dir"):
        runs.trained(run, data.synthetic("mnist", (1, 28, 28), count=64, seed=1), CPU, Silent(), NEVER)


def test_without_the_ordered_run_nothing_is_shared_nor_said_to_be(dataset: data.Dataset, tmp_path: Path) -> None:
    run = runs.plan("unordered", dataset, "smoke", 0, "cpu", tmp_path)
    assert "--share runs/mnist-paper-smoke-ordered-0" in run.command
    told = runs.trained(run, dataset, CPU, Silent(), NEVER)
    assert told["command"] == run.command.replace("--share runs/mnist-paper-smoke-ordered-0 ", "")
    assert [line["stage"] for line in read(run.folder / "metrics.jsonl")].count("pretrain") == 2


def test_a_prior_is_trained_on_the_codes_of_the_ordered_run(dataset: data.Dataset, tmp_path: Path) -> None:
    ordered, lstm = (runs.plan(kind, dataset, "smoke", 0, "cpu", tmp_path) for kind in ("ordered", "lstm"))
    with pytest.raises(UserError, match=r"lstm-0 is trained on the codes of .*ordered-0, which is not there; bring that run"):
        runs.trained(lstm, dataset, CPU, Silent(), NEVER)
    assert not lstm.folder.exists()
    runs.trained(ordered, dataset, CPU, Silent(), NEVER)
    with pytest.raises(Paused):
        runs.trained(lstm, dataset, CPU, Silent(), Pause(0.0))
    shutil.rmtree(ordered.folder)  # what it shares is behind it now
    told = runs.trained(lstm, dataset, CPU, Silent(), NEVER)
    assert "--share runs/mnist-paper-smoke-ordered-0" in told["command"]


@pytest.mark.parametrize("kind", ["ordered-vae", "standard-vae", "pca"])
def test_runs_without_codes_are_trained_once_too(dataset: data.Dataset, tmp_path: Path, kind: str) -> None:
    run = runs.plan(kind, dataset, "smoke", 0, "cpu", tmp_path)
    told = runs.trained(run, dataset, CPU, Silent(), NEVER)
    before = (run.folder / "metrics.jsonl").read_bytes()
    assert runs.trained(run, dataset, CPU, Silent(), NEVER) == told
    assert (run.folder / "metrics.jsonl").read_bytes() == before
    assert told["precision"] == "float32"
    with pytest.raises(UserError, match="holds a run with seed = 0, not 1"):
        runs.trained(replace(run, config=replace(run.config, seed=1)), dataset, CPU, Silent(), NEVER)
    other = runs.plan("ordered", dataset, "smoke", 0, "cpu", tmp_path)
    with pytest.raises(UserError, match="holds a run with recipe = "):
        runs.trained(replace(other, folder=run.folder), dataset, CPU, Silent(), NEVER)


def test_the_experiments_ask_for_kinds_that_are_there() -> None:
    assert {kind for experiment in EXPERIMENTS.values() for kind in experiment.runs} == runs.KINDS.keys()


def test_tailored_models_have_the_papers_lengths() -> None:
    pictures = data.synthetic("cifar10", (3, 32, 32), count=8)
    lengths = [
        runs.plan(tailored(f), pictures, "short", 0, "cpu", Path("runs")).codes.model.autoencoder.length
        for f in (0.2, 0.4, 0.6, 0.8, 1.0)
    ]
    assert lengths == [14, 28, 42, 56, 70]


def test_unordered_shares_the_first_stage(dataset: data.Dataset, tmp_path: Path) -> None:
    ordered, unordered = (runs.plan(kind, dataset, "smoke", 0, "cpu", tmp_path) for kind in ("ordered", "unordered"))
    assert unordered.share == ordered.folder
    runs.trained(ordered, dataset, CPU, Silent(), NEVER)
    assert shared_stages(ordered.folder, unordered.config) == 1
    runs.trained(unordered, dataset, CPU, Silent(), NEVER)
    first, second = (
        [line for line in read(run.folder / "metrics.jsonl") if line["stage"] == "pretrain"] for run in (ordered, unordered)
    )
    assert first == second, "the seconds too: it was not computed again"
    after = [(Paths(run.folder).after("pretrain")).read_bytes() for run in (ordered, unordered)]
    assert after[0] == after[1]


def test_the_objective_changes_both_stages_of_the_autoencoder_and_its_command() -> None:
    pictures = data.synthetic("cifar10", (3, 32, 32), count=8)
    run = runs.plan("sums-by-reconstruction", pictures, "short", 0, "cpu", Path("runs"))
    for stage in (run.codes.pretrain, run.codes.ordered):
        assert (stage.reduction, stage.select_by) == ("sum", "reconstruction")
    assert "--set pretrain.reduction=sum --set ordered.reduction=sum --set pretrain.select_by=reconstruction" in run.command
