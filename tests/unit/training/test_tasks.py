from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

from anytime.autoencoders.truncation import Full, Geometric, Mixture, Truncation, Uniform, probabilities
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import distributed
from anytime.data.loader import to_float
from anytime.data.recordings import PADDING
from anytime.data.synthetic import synthetic_audio, synthetic_images
from anytime.model import AnytimeModel, _tiny
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.stages import AutoencoderStage, PriorStage
from anytime.training.tasks.autoencoder import AutoencoderObjective, AutoencoderTask
from anytime.training.tasks.prior import PriorObjective, PriorTask
from anytime.training.tasks.task import validation_batches, validation_keeps

STAGE = AutoencoderStage(epochs=2, truncation=Uniform(), batch=16)


def task(tiny: AnytimeModel, stage: AutoencoderStage = STAGE, seed: int = 3) -> AutoencoderTask:
    data = synthetic_images("strokes", (1, 28, 28), count=64)
    return AutoencoderTask("ordered", stage, copy.deepcopy(tiny.autoencoder), data.train, data.validation, seed)


def test_keep_is_sampled_per_example_at_every_step(tiny: AnytimeModel) -> None:
    made = task(tiny)
    keeps = torch.stack([made.keeps.at(step, 16) for step in range(40)])
    assert keeps.min() == 1 and keeps.max() == tiny.length
    assert len(keeps.unique(dim=0)) == 40, "steps repeat each other"
    assert (keeps.float().std(1) > 0).all(), "all examples of a step have the same keep"


def test_keep_is_a_function_of_seed_and_step(tiny: AnytimeModel) -> None:
    one, other = task(tiny), task(tiny)
    forth = [one.keeps.at(step, 16) for step in (0, 1, 5, 9)]
    back = [other.keeps.at(step, 16) for step in (9, 5, 1, 0)]
    assert all(torch.equal(a, b) for a, b in zip(forth, back[::-1], strict=True))
    assert not torch.equal(task(tiny, seed=4).keeps.at(0, 16), forth[0])


def test_ranks_share_the_keeps_of_the_global_batch(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    full = task(tiny).keeps.at(5, 16)
    parts = []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(task(tiny).keeps.at(5, 8))
    assert torch.equal(torch.cat(parts), full)


def test_full_keeps_everything(tiny: AnytimeModel) -> None:
    assert (task(tiny, replace(STAGE, truncation=Full())).keeps.at(0, 16) == tiny.length).all()


@pytest.mark.parametrize("distribution", [Full(), Uniform(), Geometric(p=0.2), Mixture(full=0.25)], ids=str)
def test_the_validation_grid_follows_the_distribution(distribution: Truncation) -> None:
    keeps = validation_keeps(distribution, 16, 5_000)
    frequencies = torch.bincount(keeps, minlength=17)[1:].double() / 5_000
    torch.testing.assert_close(frequencies, probabilities(distribution, 16), atol=2e-3, rtol=0)
    assert torch.equal(keeps, validation_keeps(distribution, 16, 5_000))
    assert torch.equal(keeps[:100], validation_keeps(distribution, 16, 100))


def test_every_validation_example_is_seen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for world_size in (1, 3):
        monkeypatch.setattr(distributed, "world_size", lambda world_size=world_size: world_size)
        seen: list[int] = []
        for rank in range(world_size):
            monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
            for rows in validation_batches(1_234):
                seen.extend(range(rows.start, rows.stop))
        assert sorted(seen) == list(range(1_234))


def test_validation_changes_nothing_and_measures_the_codebook(tiny: AnytimeModel) -> None:
    made = task(tiny)
    made.objective.eval()
    before = copy.deepcopy(made.module.state_dict())
    metrics = made.validate()
    assert metrics == made.validate()
    assert metrics["loss"] == pytest.approx(metrics["reconstruction"] + metrics["quantization"])
    assert metrics["codes_used"] + metrics["codes_dead"] == tiny.codebook_size
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.module.state_dict().items())


def test_a_step_lowers_the_loss(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, truncation=Full(), lr=1e-2))
    optimizer = made.optimizer()
    first = last = math.nan
    for step in range(30):
        losses = made.losses(made.objective, *made.inputs(step))
        optimizer.zero_grad()
        losses[0].backward()
        optimizer.step()
        first, last = (float(losses[0].detach()) if step == 0 else first), float(losses[0].detach())
    assert last < 0.7 * first


def test_an_ema_codebook_is_updated_after_the_step() -> None:
    config = _tiny().autoencoder
    torch.manual_seed(0)
    model = AnytimeModel(
        replace(_tiny(), autoencoder=replace(config, quantizer=replace(config.quantizer, codebook="ema", ema_decay=0.5)))
    )
    made = task(model)
    before = made.module.quantizer.codebook.clone()
    made.losses(made.objective, *made.inputs(0))
    assert torch.equal(made.module.quantizer.codebook, before)
    made.after_step(0)
    assert not torch.equal(made.module.quantizer.codebook, before)
    assert not any(p is made.module.quantizer.codebook for group in made.optimizer().param_groups for p in group["params"])


def test_the_priors_loss_is_nats_a_code(tiny: AnytimeModel) -> None:
    codes = torch.randint(16, (6, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        loss = PriorObjective(tiny.prior)(codes)
        likelihood = tiny.prior(codes).log_softmax(-1).gather(-1, codes[..., None]).mean()
    torch.testing.assert_close(loss, -likelihood[None])


def test_the_priors_optimizer_and_lr(tiny: AnytimeModel) -> None:
    codes = torch.randint(16, (64, 8), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    made = PriorTask(PriorStage(epochs=5, batch=16), copy.deepcopy(tiny.prior), codes, codes[:10], seed=0)
    (group,) = made.optimizer().param_groups
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-6, 0.1)
    assert sum(p.numel() for p in group["params"]) == sum(p.numel() for p in tiny.prior.parameters())
    assert made.lr(0) == 1e-7
    assert made.lr(5) == 2e-3, "a quarter of 20 steps"
    with torch.no_grad():
        expected = float(PriorObjective(tiny.prior)(codes[:10].long()))
    assert made.validate()["loss"] == pytest.approx(expected)


def test_audio_padding_is_masked_or_learned_as_silence() -> None:
    dataset = synthetic_audio("audio", count=64)
    config = with_scale(preset("audio", "paper", dataset.shape), "smoke").model.autoencoder
    torch.manual_seed(0)
    model = VQVAE(config).eval()
    x, keep = dataset.validation, torch.full((len(dataset.validation),), config.length)
    loud = torch.where(x == PADDING, 20_000, x)
    masked, silence = (AutoencoderObjective(model, replace(STAGE, padding=padding)) for padding in ("masked", "silence"))
    with torch.no_grad():
        x_hat = model(to_float(x), keep).x
        reconstruction_weight = ((x_hat - to_float(x)).square() * (x != PADDING)).sum((1, 2)) / (x != PADDING).sum((1, 2))
        assert torch.allclose(masked(x, keep).losses[1], reconstruction_weight.mean(), rtol=1e-5)
        assert torch.allclose(silence(x, keep).losses[1], (x_hat - to_float(x)).square().mean(), rtol=1e-5)
        assert not torch.equal(masked(loud, keep).losses[1], masked(x, keep).losses[1])


def test_audio_is_cropped_differently_in_every_epoch() -> None:
    dataset = synthetic_audio("audio", count=8)
    config = with_scale(preset("audio", "paper", dataset.shape), "smoke").model.autoencoder
    stage = replace(STAGE, batch=8)
    task = AutoencoderTask("ordered", stage, VQVAE(config), dataset.train, dataset.validation, seed=1)
    first, second = (task.inputs(step)[0] for step in (0, 1))
    assert first.shape == (8, 1, 15_360)
    assert {tuple(x[0, :50].tolist()) for x in first} != {tuple(x[0, :50].tolist()) for x in second}
    assert torch.equal(task.inputs(0)[0], first)


def test_the_spectral_loss_is_added_and_logged() -> None:
    dataset = synthetic_audio("audio", count=64)
    config = with_scale(preset("audiomnist", "best", dataset.shape), "smoke")
    torch.manual_seed(0)
    stage = replace(config.ordered, reconstruction_weight=100.0, spectral_weight=2.0, padding="masked")
    task = AutoencoderTask("ordered", stage, VQVAE(config.model.autoencoder), dataset.train, dataset.validation, seed=1)
    assert task.loss_names == ("loss", "reconstruction", "quantization", "spectral")
    losses = task.losses(task.objective, *task.inputs(0)).detach()
    torch.testing.assert_close(losses[0], 100 * losses[1] + losses[2] + 2 * losses[3])
    assert task.validate()["spectral"] > 0
    x, keep = task.inputs(0)
    loud = torch.where(x == PADDING, PADDING, x // 2)
    assert not torch.equal(task.losses(task.objective, loud, keep).detach()[3], losses[3])


def test_lr_may_decay_to_zero(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, lr_schedule="cosine", lr=1e-2))
    steps = made.epochs * made.steps_per_epoch
    lrs = [made.lr(step) for step in range(steps + 1)]
    assert lrs[0] == 1e-2 and lrs[-1] == pytest.approx(0, abs=1e-9)
    assert lrs == sorted(lrs, reverse=True)


@pytest.mark.parametrize("loss", ["total", "reconstruction"])
def test_the_selecting_loss_comes_first(tiny: AnytimeModel, loss: str) -> None:
    metrics = task(tiny, replace(STAGE, select_by=loss)).validate()  # type: ignore[arg-type]
    assert next(iter(metrics)) == {"total": "loss"}.get(loss, loss)
    assert metrics["loss"] > metrics["reconstruction"]
