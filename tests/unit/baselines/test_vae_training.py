from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from anytime.autoencoders.truncation import Full, Uniform
from anytime.baselines.vae import VAE, VAERunConfig, VAEStage, VAETask
from anytime.core import distributed
from anytime.core.config import from_dict, to_dict
from anytime.core.errors import UserError
from anytime.data.synthetic import synthetic_images
from anytime.recipes.baselines import vae
from anytime.recipes.presets import preset

STAGE = VAEStage(epochs=2, truncation=Uniform(), batch=16)


def task(stage: VAEStage = STAGE, seed: int = 3) -> VAETask:
    data = synthetic_images("strokes", (1, 28, 28), count=64)
    torch.manual_seed(0)
    model = VAE(replace(vae("strokes", (1, 28, 28), "smoke").model, length=6))
    return VAETask("ordered", stage, model, data.train, data.validation, seed)


def test_the_recipe_is_the_vq_models_networks_and_schedule() -> None:
    config, reference = vae("cifar10", (3, 32, 32)), preset("cifar10", "paper", (3, 32, 32))
    model, autoencoder = config.model, reference.model.autoencoder
    assert (model.shape, model.length, model.dim) == (autoencoder.shape, autoencoder.length, autoencoder.dim)
    assert (model.widths, model.kernels, model.strides) == (autoencoder.widths, autoencoder.kernels, autoencoder.strides)
    assert (config.pretrain.epochs, config.ordered.epochs) == (200, 200)
    assert (config.pretrain.truncation, config.ordered.truncation) == (Full(), Uniform())
    assert (config.ordered.lr, config.ordered.batch) == (reference.ordered.lr, reference.ordered.batch)
    short = vae("cifar10", (3, 32, 32), "short")
    assert (short.pretrain.epochs, short.ordered.epochs) == (40, 60)
    assert from_dict(VAERunConfig, to_dict(config)) == config


@pytest.mark.parametrize("change", [{"seed": -1}, {"examples": 0}])
def test_configs_that_cannot_be(change: dict[str, int]) -> None:
    with pytest.raises(UserError, match=next(iter(change))):
        replace(vae("cifar10", (3, 32, 32)), **change)


def test_inputs_are_a_function_of_seed_and_step() -> None:
    one, other = task(), task()
    forth = [one.inputs(step) for step in (0, 1, 5)]
    back = [other.inputs(step) for step in (5, 1, 0)]
    for a, b in zip(forth, back[::-1], strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(forth[0][2], forth[1][2])
    assert not torch.equal(task(seed=4).inputs(0)[2], forth[0][2])


def test_the_noise_is_unit_normal() -> None:
    noise = torch.cat([task().inputs(step)[2] for step in range(4)])
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)
    assert float(noise.std()) == pytest.approx(1, abs=0.02)


def test_ranks_share_the_noise_of_the_global_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    full = task().inputs(5)
    parts = []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(task().inputs(5))
    for index, tensor in enumerate(full):
        assert torch.equal(torch.cat([part[index] for part in parts]), tensor)


def test_validation_is_repeatable_and_is_the_bound() -> None:
    made = task()
    made.objective.eval()
    metrics = made.validate()
    assert metrics == made.validate()
    assert next(iter(metrics)) == "loss"
    assert metrics["loss"] == pytest.approx(metrics["reconstruction"] + metrics["kl"])


def test_a_step_lowers_the_loss() -> None:
    made = task(replace(STAGE, truncation=Full(), lr=1e-2))
    optimizer = made.optimizer()
    losses = []
    for step in range(30):
        loss = made.losses(made.objective, *made.inputs(step))[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert math.isfinite(losses[-1])
    assert losses[-1] < losses[0] - 0.5
