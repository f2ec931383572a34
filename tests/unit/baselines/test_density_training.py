from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime.baselines.density import DensityRunConfig, DensityRunSpec, DensityTask, Space
from anytime.core import distributed
from anytime.core.config import from_dict, to_dict
from anytime.core.errors import UserError
from anytime.data.dataset import Dataset
from anytime.data.synthetic import synthetic_images
from anytime.recipes.baselines import density
from anytime.recipes.presets import preset
from anytime.training.run import train

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic_images("strokes", SHAPE, count=128)


def task(data: Dataset, space: Space = "pca", seed: int = 3) -> DensityTask:
    torch.manual_seed(0)
    plan = DensityRunSpec(density("strokes", SHAPE, space, "smoke"), data.train, data.validation, torch.device("cpu"))
    made = plan.task(0, seed, print)
    assert isinstance(made, DensityTask)
    return made


def test_both_spaces_have_the_papers_transformer_and_one_schedule() -> None:
    one, other = (density("mnist", (1, 28, 28), space) for space in ("pixels", "pca"))
    assert replace(one, model=replace(one.model, space="pca")) == other
    reference, prior = preset("mnist", "paper", (1, 28, 28)), one.model.prior
    theirs = to_dict(reference.model.prior)
    assert (prior.length, prior.mixtures) == (784, 10)
    assert all(theirs[key] == getattr(prior, key) for key in ("layers", "width", "hidden", "heads"))
    assert (prior.dropout, one.prior.lr) == (0.0, reference.prior.lr / 4)
    assert (one.prior.epochs, density("mnist", (1, 28, 28), "pca", "short").prior.epochs) == (8, 2)
    assert from_dict(DensityRunConfig, to_dict(one)) == one


def test_inputs_are_a_function_of_seed_and_step(data: Dataset) -> None:
    one, other = task(data), task(data)
    (a,), (b,), (c,) = one.inputs(3), other.inputs(3), other.inputs(3 + one.steps_per_epoch)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert not torch.equal(task(data, seed=4).inputs(3)[0], a)


def test_ranks_share_the_noise_of_the_global_batch(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    (full,) = task(data).inputs(2)
    parts = []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(task(data).inputs(2)[0])
    torch.testing.assert_close(torch.cat(parts), full)


@pytest.mark.parametrize("space", ["pixels", "pca"])
def test_through_the_one_loop_and_on_from_where_it_stopped(space: Space, data: Dataset, tmp_path: Path) -> None:
    config = density("strokes", SHAPE, space, "smoke")
    config = replace(config, prior=replace(config.prior, lr=0.01))
    run = tmp_path / "run"
    train(config, data, run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["prior", "prior"]
    assert lines[1]["train"]["loss"] < lines[0]["train"]["loss"], "it learns"
    weights = (run / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(run / "model")
    max((run / "checkpoints").glob("step-*.safetensors")).unlink()
    train(config, data, run)
    assert (run / "model" / "model.safetensors").read_bytes() == weights
    other = replace(config, model=replace(config.model, space="pca" if space == "pixels" else "pixels"))
    with pytest.raises(UserError, match=r"holds a run with model\.space"):
        train(other, data, run)


def test_a_grid_of_samples(data: Dataset, tmp_path: Path) -> None:
    plan = DensityRunSpec(density("strokes", SHAPE, "pca", "smoke"), data.train, data.validation, torch.device("cpu"))
    plan.save_grid(tmp_path / "x.png", "prior")
    assert (tmp_path / "x.png").stat().st_size > 100


@pytest.mark.parametrize("change", [{"seed": -1}, {"examples": 0}])
def test_configs_that_cannot_be(change: dict[str, int]) -> None:
    with pytest.raises(UserError, match=next(iter(change))):
        replace(density("mnist", (1, 28, 28), "pca"), **change)
