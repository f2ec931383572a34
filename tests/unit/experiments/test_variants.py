"""Planned runs: each equals what its command trains, and is trained once."""

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
from anytime.core.progress import SilentReporter
from anytime.data.synthetic import synthetic_audio
from anytime.experiments import variants
from anytime.experiments.registry import EXPERIMENTS
from anytime.experiments.variants import tailored
from anytime.training.log import read
from anytime.training.run_dir import RunPaths, reusable_stages

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.synthetic_images("mnist", (1, 28, 28), count=64)


@pytest.fixture(scope="module")
def audio_dataset() -> data.Dataset:
    return synthetic_audio("audiomnist", count=8)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("scale", ["smoke", "short", "full"])
@pytest.mark.parametrize(
    ("name", "variant"),
    [("mnist", variant) for variant in variants.VARIANTS if not variant.startswith("best")]
    + [("audiomnist", variant) for variant in ("ordered", "unordered", "best", "best-unordered")],
)
def test_command_trains_the_same_config(
    dataset: data.Dataset, audio_dataset: data.Dataset, tmp_path: Path, name: str, variant: str, scale: str, device: str
) -> None:
    dataset = audio_dataset if name == "audiomnist" else dataset
    run = variants.plan(variant, dataset, scale, 3, device, tmp_path, local=True)  # type: ignore[arg-type]
    words = shlex.split(run.command)
    assert words[:3] == ["anytime", "train", name]
    arguments = parse(train_verb.Arguments, words[2:], "train", "")
    assert train_verb._config(arguments, dataset, torch.device(device)) == run.config
    assert arguments.out is not None and run.run_dir == tmp_path / arguments.out.name
    assert str(arguments.data) == "DIR"
    assert (run.reuse is None) == (arguments.reuse is None)


def test_run_names_are_unique() -> None:
    choices = [
        (variant, scale, seed) for variant in variants.VARIANTS for scale in ("smoke", "short", "full") for seed in (0, 1)
    ]
    names = {variants.VARIANTS[variant].run_name("mnist", scale, seed) for variant, scale, seed in choices}  # type: ignore[arg-type]
    assert len(names) == len(choices)
    assert {"mnist-paper-short-ordered-0", "mnist-best-full-unordered-1"} <= names


def test_epochs_of_the_run_and_of_the_paper(dataset: data.Dataset, tmp_path: Path) -> None:
    short = variants.plan("ordered", dataset, "short", 0, "cpu", tmp_path)
    assert (short.epochs, short.full_epochs) == ("40 + 60 + 20", "200 + 200 + 50")
    full = variants.plan("ordered", dataset, "full", 0, "cpu", tmp_path)
    assert full.epochs == full.full_epochs


@pytest.mark.parametrize(("examples", "epochs"), [(25_000, (72, 108, 36)), (10_000, (180, 270, 90)), (5_000, (360, 540, 180))])
def test_fewer_images_take_the_same_steps(examples: int, epochs: tuple[int, ...]) -> None:
    every = variants.build_config("cifar10", "paper", (3, 32, 32), "short")
    words = variants.equal_steps(every, 45_000, examples)
    names = ("pretrain", "ordered", "prior")
    assert words == [f"{name}.epochs={count}" for name, count in zip(names, epochs, strict=True)]
    for name, count in zip(names, epochs, strict=True):
        stage = getattr(every, name)
        assert count * (examples // stage.batch) == stage.epochs * (45_000 // stage.batch), "to the step"


def test_run_is_trained_once_then_reused(dataset: data.Dataset, tmp_path: Path) -> None:
    run = variants.plan("ordered", dataset, "smoke", 0, "cpu", tmp_path)
    with pytest.raises(Paused, match="mnist-paper-smoke-ordered-0 is trained"):
        # The clock stands still until the run is finished and saved; then the pause is due.
        pause = Pause(1.0, lambda: float(RunPaths(run.run_dir).finished))
        variants.ensure_trained(run, dataset, CPU, SilentReporter(), pause)
    before = (run.run_dir / "metrics.jsonl").read_bytes()
    info = variants.ensure_trained(run, dataset, CPU, SilentReporter(), Pause(0.0))
    assert (run.run_dir / "metrics.jsonl").read_bytes() == before
    assert info.command == run.command
    assert (info.examples, info.precision) == (64, "float32")
    # The precision does not change the run; another config or other data does.
    variants.ensure_trained(
        replace(run, config=replace(run.config, precision="bfloat16", compile=True)), dataset, CPU, SilentReporter(), NEVER
    )
    with pytest.raises(UserError, match="holds a run with seed = 0, not 1"):
        variants.ensure_trained(replace(run, config=replace(run.config, seed=1)), dataset, CPU, SilentReporter(), NEVER)
    with pytest.raises(UserError, match=r"was begun on other data .* choose another `runs_dir`"):
        variants.ensure_trained(
            run, data.synthetic_images("mnist", (1, 28, 28), count=64, seed=1), CPU, SilentReporter(), NEVER
        )


def test_nothing_is_reused_without_the_ordered_run(dataset: data.Dataset, tmp_path: Path) -> None:
    run = variants.plan("unordered", dataset, "smoke", 0, "cpu", tmp_path)
    assert "--reuse runs/mnist-paper-smoke-ordered-0" in run.command
    info = variants.ensure_trained(run, dataset, CPU, SilentReporter(), NEVER)
    assert info.command == run.command.replace("--reuse runs/mnist-paper-smoke-ordered-0 ", "")
    assert [line["stage"] for line in read(run.run_dir / "metrics.jsonl")].count("pretrain") == 2


def test_a_prior_is_trained_on_the_codes_of_the_ordered_run(dataset: data.Dataset, tmp_path: Path) -> None:
    ordered, lstm = (variants.plan(variant, dataset, "smoke", 0, "cpu", tmp_path) for variant in ("ordered", "lstm"))
    with pytest.raises(UserError, match=r"lstm-0 is trained on the codes of .*ordered-0, which is missing; copy that run"):
        variants.ensure_trained(lstm, dataset, CPU, SilentReporter(), NEVER)
    assert not lstm.run_dir.exists()
    variants.ensure_trained(ordered, dataset, CPU, SilentReporter(), NEVER)
    with pytest.raises(Paused):
        variants.ensure_trained(lstm, dataset, CPU, SilentReporter(), Pause(0.0))
    shutil.rmtree(ordered.run_dir)  # no longer needed: the reused stages are done
    info = variants.ensure_trained(lstm, dataset, CPU, SilentReporter(), NEVER)
    assert "--reuse runs/mnist-paper-smoke-ordered-0" in info.command


@pytest.mark.parametrize("variant", ["ordered-vae", "standard-vae", "pca"])
def test_runs_without_codes_are_trained_once_too(dataset: data.Dataset, tmp_path: Path, variant: str) -> None:
    run = variants.plan(variant, dataset, "smoke", 0, "cpu", tmp_path)
    info = variants.ensure_trained(run, dataset, CPU, SilentReporter(), NEVER)
    before = (run.run_dir / "metrics.jsonl").read_bytes()
    assert variants.ensure_trained(run, dataset, CPU, SilentReporter(), NEVER) == info
    assert (run.run_dir / "metrics.jsonl").read_bytes() == before
    assert info.precision == "float32"
    with pytest.raises(UserError, match="holds a run with seed = 0, not 1"):
        variants.ensure_trained(replace(run, config=replace(run.config, seed=1)), dataset, CPU, SilentReporter(), NEVER)
    other = variants.plan("ordered", dataset, "smoke", 0, "cpu", tmp_path)
    with pytest.raises(UserError, match="holds a run with recipe = "):
        variants.ensure_trained(replace(other, run_dir=run.run_dir), dataset, CPU, SilentReporter(), NEVER)


def test_experiments_use_known_variants() -> None:
    assert {variant for experiment in EXPERIMENTS.values() for variant in experiment.runs} == variants.VARIANTS.keys()


def test_tailored_models_have_the_papers_lengths() -> None:
    images = data.synthetic_images("cifar10", (3, 32, 32), count=8)
    lengths = [
        variants.plan(tailored(f), images, "short", 0, "cpu", Path("runs")).codes.model.autoencoder.length
        for f in (0.2, 0.4, 0.6, 0.8, 1.0)
    ]
    assert lengths == [14, 28, 42, 56, 70]


def test_unordered_reuses_the_first_stage(dataset: data.Dataset, tmp_path: Path) -> None:
    ordered, unordered = (variants.plan(variant, dataset, "smoke", 0, "cpu", tmp_path) for variant in ("ordered", "unordered"))
    assert unordered.reuse == ordered.run_dir
    variants.ensure_trained(ordered, dataset, CPU, SilentReporter(), NEVER)
    assert reusable_stages(ordered.run_dir, unordered.config) == 1
    variants.ensure_trained(unordered, dataset, CPU, SilentReporter(), NEVER)
    first, second = (
        [line for line in read(run.run_dir / "metrics.jsonl") if line["stage"] == "pretrain"] for run in (ordered, unordered)
    )
    assert first == second, "with equal seconds: it was not computed again"
    stage_weights = [(RunPaths(run.run_dir).stage_weights("pretrain")).read_bytes() for run in (ordered, unordered)]
    assert stage_weights[0] == stage_weights[1]


def test_the_objective_changes_both_stages_of_the_autoencoder_and_its_command() -> None:
    images = data.synthetic_images("cifar10", (3, 32, 32), count=8)
    run = variants.plan("sums-by-reconstruction", images, "short", 0, "cpu", Path("runs"))
    for stage in (run.codes.pretrain, run.codes.ordered):
        assert (stage.reduction, stage.select_by) == ("sum", "reconstruction")
    assert "--set pretrain.reduction=sum --set ordered.reduction=sum --set pretrain.select_by=reconstruction" in run.command
