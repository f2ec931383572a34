"""Fine-tuning the decoder against a discriminator: which loss trains what, and that codes keep their meaning."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from anytime.autoencoders.truncation import Full, Uniform
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import distributed
from anytime.core.errors import UserError
from anytime.data.loader import to_float
from anytime.data.synthetic import synthetic_audio, synthetic_images
from anytime.metrics.code_stats import encode_dataset
from anytime.model import AnytimeModel
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.checkpoint import optimizer_tensors, restore_optimizer
from anytime.training.discriminators import (
    CONDITION_CHANNELS,
    AudioDiscriminator,
    DiscriminatorOutput,
    ImageDiscriminator,
    augment_for_discriminator,
    no_augmentation,
)
from anytime.training.ema import EMA
from anytime.training.stages import FinetuneStage
from anytime.training.step import Compute, set_lr
from anytime.training.tasks.finetune import (
    ADVERSARIAL_WEIGHT,
    EncodedExamples,
    FinetuneObjective,
    FinetuneTask,
    feature_matching_loss,
    frozen_copy,
    hinge,
)

STAGE = FinetuneStage(epochs=2, truncation=Uniform(), batch=16, code_corruption=0.0, width=4)


def task(tiny: AnytimeModel, stage: FinetuneStage = STAGE, seed: int = 3) -> FinetuneTask:
    """Return a task with random codes."""
    data, autoencoder = synthetic_images("strokes", (1, 28, 28), count=64), copy.deepcopy(tiny.autoencoder)
    torch.manual_seed(0)
    discriminator = ImageDiscriminator(stage.width, 1 + CONDITION_CHANNELS * stage.conditional_discriminator, 28)
    size, length = autoencoder.codebook_size, autoencoder.length
    train, validation = (EncodedExamples(x, torch.randint(size, (len(x), length))) for x in (data.images, data.validation))
    sample_pool = torch.randint(size, (50, length)) if stage.prior_samples else None
    return FinetuneTask(stage, autoencoder, discriminator, augment_for_discriminator, train, validation, seed, sample_pool)


def with_true_codes(made: FinetuneTask) -> FinetuneTask:
    """Give the task a codebook that tells latents apart, and the examples' own codes."""
    nn.init.normal_(made.model.quantizer.codebook)
    made.train, made.validation = (EncodedExamples(x, encode_dataset(made.model, x)) for x, _ in (made.train, made.validation))
    return made


def gradients(made: FinetuneTask, loss: str) -> tuple[list[Tensor], list[Tensor]]:
    """Return the gradients of one loss by the decoder and by the discriminator."""
    made.objective.zero_grad()
    made.objective.eval()
    made.losses(made.objective, *made.inputs(0))[made.loss_names.index(loss)].backward()
    decoder, discriminator = (list(part.parameters()) for part in (made.objective.decoder, made.objective.discriminator))
    return [p.grad for p in decoder if p.grad is not None], [p.grad for p in discriminator if p.grad is not None]


def test_each_side_learns_from_its_own_loss(tiny: AnytimeModel) -> None:
    made = task(tiny)
    decoder, discriminator = gradients(made, "discriminator")
    assert not any(g.abs().sum() > 0 for g in decoder)
    assert any(g.abs().sum() > 0 for g in discriminator)
    for loss in ("adversarial", "feature_matching", "reconstruction"):
        decoder, discriminator = gradients(made, loss)
        assert any(g.abs().sum() > 0 for g in decoder), loss
        assert not any(g.abs().sum() > 0 for g in discriminator), loss


def test_the_total_is_the_weighted_sum(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, reconstruction_weight=10.0))
    total, discriminator, adversarial, features, error = made.losses(made.objective, *made.inputs(made.steps_per_epoch))
    torch.testing.assert_close(total, discriminator + ADVERSARIAL_WEIGHT * adversarial + features + 10 * error)


def test_encoder_and_codebook_are_frozen_and_the_decoder_learns(tiny: AnytimeModel) -> None:
    made = with_true_codes(task(tiny, replace(STAGE, truncation=Full(), lr=3e-3)))
    before = copy.deepcopy(made.model.state_dict())
    optimizer = made.optimizer()
    names, history = made.loss_names, []
    for step in range(40):
        losses = made.losses(made.objective, *made.inputs(step % 8))
        optimizer.zero_grad()
        losses[0].backward()
        optimizer.step()
        history.append(dict(zip(names, losses.tolist(), strict=True)))
    assert history[-1]["reconstruction"] < 0.8 * history[0]["reconstruction"]
    assert history[-1]["discriminator"] < history[0]["discriminator"]
    changed = {name.split(".")[0] for name, tensor in made.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"decoder"}
    assert torch.equal(encode_dataset(made.model, made.train.x), made.train.codes), "codes keep their meaning"


def test_only_the_decoder_changes(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, prior_samples=8))
    before = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    optimizer = made.optimizer()
    train_step = Compute(torch.device("cpu")).step(made, optimizer)
    made.objective.train()
    for step in range(3):
        train_step(made.inputs(step))
        made.after_step(step)
    after = made.model.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"decoder"}


def test_a_frozen_copy_shares_weights_and_takes_no_gradient() -> None:
    network = nn.Linear(3, 2)
    clone = frozen_copy(network)
    x = torch.randn(4, 3, requires_grad=True)
    clone(x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad[0], network.weight.sum(0))
    assert all(p.grad is None for p in (*clone.parameters(), *network.parameters()))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    network(x.detach()).sum().backward()
    optimizer.step()
    assert torch.equal(clone(x), network(x))
    network.load_state_dict(nn.Linear(3, 2).state_dict())
    assert torch.equal(clone(x), network(x)), "resumed, too"


def test_the_decoder_uses_its_running_batch_norm(tiny: AnytimeModel) -> None:
    made = task(tiny)
    norms = [m for m in made.objective.decoder.modules() if isinstance(m, nn.BatchNorm2d)]
    before = [norm.running_mean.clone() for norm in norms if norm.running_mean is not None]
    made.objective.train()
    made.objective(*made.inputs(0))
    assert norms and all(torch.equal(a, b.running_mean) for a, b in zip(before, norms, strict=True))  # type: ignore[arg-type]
    assert made.objective.discriminator.training


def test_prior_samples_only_enter_the_adversarial_losses(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, prior_samples=8))
    x, codes, *rest = made.inputs(0)
    keep, numbers, _ = rest
    assert len(codes) == len(keep) == len(numbers) == len(x) + 8
    others = codes.clone()
    others[len(x) :] = (others[len(x) :] + 1) % made.model.codebook_size
    made.objective.eval()
    losses, other = (dict(zip(made.loss_names, made.objective(x, c, *rest), strict=True)) for c in (codes, others))
    assert all(torch.equal(losses[name], other[name]) for name in ("feature_matching", "reconstruction"))
    assert not any(torch.equal(losses[name], other[name]) for name in ("discriminator", "adversarial"))


def test_ranks_share_a_step(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = replace(STAGE, prior_samples=8, code_corruption=0.2)
    torch.manual_seed(1)
    full = task(tiny, stage).inputs(5)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    parts = []
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(task(tiny, stage).inputs(5))
    for one, other, all_of_it in zip(*(part[2:4] for part in parts), full[2:4], strict=True):  # keep and numbers
        examples, prior_samples = (torch.cat([one[rows], other[rows]]) for rows in (slice(8), slice(8, None)))
        assert torch.equal(torch.cat([examples, prior_samples]), all_of_it)


def test_the_adversarial_weight_warms_up(tiny: AnytimeModel) -> None:
    made = task(tiny)
    steps = made.steps_per_epoch
    assert [float(made.inputs(step)[-1]) for step in (0, steps - 1, steps)] == pytest.approx([1 / steps, 1.0, 1.0])


def test_code_corruption_takes_codes_of_another_example(tiny: AnytimeModel) -> None:
    plain, code_corruption, again = (task(tiny, replace(STAGE, code_corruption=fraction)) for fraction in (0.0, 0.25, 0.25))
    fractions = list[Tensor]()
    for step in range(20):
        own, given = plain.inputs(step)[1], code_corruption.inputs(step)[1]
        corrupted = given != own
        assert torch.equal(given, torch.where(corrupted, own.roll(1, 0), own))
        differ = own != own.roll(1, 0)
        fractions.append(corrupted.sum(1) / differ.sum(1))
    every = torch.stack(fractions)
    assert every.mean() == pytest.approx(0.25, abs=0.05)
    assert every.std() > 0.1, "some rows keep almost all of theirs"
    assert all(torch.equal(a, b) for a, b in zip(code_corruption.inputs(5), again.inputs(5), strict=True))


def test_losses_by_hand() -> None:
    real, made = (
        DiscriminatorOutput([torch.tensor([2.0, 0.5])], [torch.tensor([[2.0]])]),
        DiscriminatorOutput([torch.tensor([-3.0, 0.0])], []),
    )
    assert hinge(real, made) == pytest.approx(0.25 + 0.5)
    assert feature_matching_loss(DiscriminatorOutput([], [torch.tensor([[3.0], [9.0]])]), real, 1) == pytest.approx(0.5)


def test_hinge_and_feature_distance() -> None:
    sure = DiscriminatorOutput([torch.full((2, 1, 3, 3), 2.0)], [torch.ones(2, 4)])
    fooled = DiscriminatorOutput([torch.full((2, 1, 3, 3), -2.0)], [torch.full((2, 4), 3.0)])
    assert hinge(sure, fooled) == 0
    assert hinge(fooled, sure) == 6
    assert feature_matching_loss(sure, sure, 2) == 0
    assert feature_matching_loss(fooled, sure, 2) == 2
    assert feature_matching_loss(sure, fooled, 2) == pytest.approx(2 / 3)


def test_ema_weights_follow_the_live_weights() -> None:
    averaged = nn.Linear(2, 2)
    start = averaged.weight.detach().clone()
    ema = EMA(averaged, 0.9)
    with torch.no_grad():
        ema.live.weight += 1
    ema.update(1000)
    torch.testing.assert_close(averaged.weight.detach(), start + 0.1)
    ema.update(1001)
    torch.testing.assert_close(averaged.weight.detach(), start + 0.19)
    ema.update(0)  # at the first step the decay is 0.1
    torch.testing.assert_close(averaged.weight.detach(), start + 0.19 + 0.9 * 0.81)
    same = EMA(averaged, 0.0)
    same.update(0)
    assert same.live is averaged and not same.enabled


def test_prior_samples_may_have_their_own_truncation(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, prior_samples=8, truncation=Full(), prior_truncation=Uniform()))
    keeps = torch.stack([made.inputs(step)[2] for step in range(4)])
    assert (keeps[:, :-8] == tiny.length).all()
    assert (keeps[:, -8:] < tiny.length).any()
    alike = task(tiny, replace(STAGE, prior_samples=8, truncation=Full()))
    assert (alike.inputs(0)[2] == tiny.length).all()


def discriminator_inputs(made: FinetuneTask) -> list[Tensor]:
    """Return the discriminator's inputs in one step: real images, and the decoded ones twice."""
    seen = list[Tensor]()

    def watch(x: Tensor) -> DiscriminatorOutput:
        seen.append(x)
        output: DiscriminatorOutput = ImageDiscriminator.forward(made.objective.discriminator, x)  # type: ignore[arg-type]
        return output

    made.objective.discriminator.forward = watch  # type: ignore[method-assign, assignment]
    made.objective.frozen.forward = watch  # type: ignore[method-assign, assignment]
    made.losses(made.objective, *made.inputs(0))
    return seen


def test_each_fake_is_paired_with_a_real_example(tiny: AnytimeModel) -> None:
    stage = replace(STAGE, prior_samples=24)
    made, alike = task(tiny, stage), task(tiny, stage)
    alike.objective.augment = no_augmentation  # no two of them are changed in the same way otherwise
    real, fake_input, generator_input = discriminator_inputs(alike)
    assert len(real) == len(fake_input) == len(generator_input) == 16 + 24
    assert torch.equal(fake_input, generator_input)
    x = to_float(alike.inputs(0)[0])
    assert torch.equal(real, torch.cat([x, x, x[:8]])), "beside an example its own original"
    changed, numbers = discriminator_inputs(made)[0], made.inputs(0)[3]
    assert torch.equal(changed, augment_for_discriminator(real, numbers)), "changed as the one that is made"
    assert all(math.isfinite(value) for value in made.validate().values()), "without prior samples"


def test_the_discriminator_is_conditioned_on_keep_and_source(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, prior_samples=8, conditional_discriminator=True))
    fraction = made.inputs(0)[2].float() / made.model.length
    for planes in (x[:, 1:].flatten(2) for x in discriminator_inputs(made)):
        assert (planes == planes[..., :1]).all(), "one number per image"
        assert torch.equal(planes[:, 0, 0], fraction), "real ones are said to be of the same kind"
        assert planes[:, 1, 0].tolist() == [0] * 16 + [1] * 8
    assert all(math.isfinite(value) for value in made.validate().values())


def test_the_discriminator_has_its_own_lr_ratio(tiny: AnytimeModel) -> None:
    made = task(tiny, replace(STAGE, discriminator_lr_ratio=4.0))
    optimizer = made.optimizer()
    train_step = Compute(torch.device("cpu")).step(made, optimizer)
    set_lr(optimizer, made.lr(0))
    train_step(made.inputs(0))
    again = made.optimizer()
    restore_optimizer(again, optimizer_tensors(optimizer))
    for each in (optimizer, again):
        set_lr(each, made.lr(5))
        decoder, discriminator = each.param_groups
        assert decoder["lr"] == made.lr(5) < made.lr(0) and discriminator["lr"] == 4 * decoder["lr"]
        for group, part in ((decoder, made.objective.decoder), (discriminator, made.objective.discriminator)):
            assert all(one is other for one, other in zip(group["params"], part.parameters(), strict=True))
            assert all(each.state[p]["step"] == 1 for p in group["params"])


def test_validation_changes_nothing(tiny: AnytimeModel) -> None:
    made = task(tiny)
    made.objective.eval()
    before = copy.deepcopy(made.objective.state_dict())
    numbers = made.validate()
    assert numbers == made.validate()
    assert list(numbers) == ["loss", "discriminator", "adversarial", "feature_matching", "reconstruction"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.objective.state_dict().items())


@pytest.fixture(scope="module")
def audio_batch() -> tuple[VQVAE, Tensor]:
    dataset = synthetic_audio("audio", count=64)
    config = with_scale(preset("audiomnist", "best", dataset.shape), "smoke").model.autoencoder
    torch.manual_seed(0)
    return VQVAE(config), dataset.validation


def test_the_audio_discriminator_works_on_spectra(audio_batch: tuple[VQVAE, Tensor]) -> None:
    model, x = audio_batch
    stage = replace(STAGE, spectral_weight=1.0, padding="silence")
    torch.manual_seed(1)
    objective = FinetuneObjective(model, model.decoder, AudioDiscriminator(4), stage, no_augmentation)
    codes, keep = encode_dataset(model, x).long(), torch.full((len(x),), model.length)
    losses = objective(x, codes, keep, torch.rand(len(x), 8), torch.tensor(1.0))
    losses[0].backward()
    assert losses.shape == (6,) and losses.isfinite().all()
    for part in (model.decoder, objective.discriminator):
        assert all(p.grad is not None and p.grad.isfinite().all() for p in part.parameters())
    assert all(p.grad is None for p in objective.frozen.parameters())


def test_padding_is_silent_to_the_discriminator(audio_batch: tuple[VQVAE, Tensor]) -> None:
    model, x = audio_batch
    seen: list[Tensor] = []

    def watch(shown: Tensor, numbers: Tensor) -> Tensor:
        seen.append(shown)
        return shown

    torch.manual_seed(1)
    objective = FinetuneObjective(model, model.decoder, AudioDiscriminator(2), replace(STAGE, padding="masked"), watch)
    with torch.no_grad():
        keep = torch.full((len(x),), model.length)
        objective(x, encode_dataset(model, x).long(), keep, torch.rand(len(x), 8), torch.tensor(1.0))
    padded = x == -32_768
    assert padded.any()
    assert (seen[1][padded] == 0).all() and (seen[1][~padded] != 0).any()


@pytest.mark.parametrize(
    "change",
    [
        {"code_corruption": 0.6},
        {"reconstruction_weight": -1.0},
        {"width": 0},
        {"augmentations": 0},
        {"speed_perturb": 0.9},
        {"epochs": 0},
        {"prior_samples": -1},
        {"ema_decay": 1.0},
        {"discriminator_lr_ratio": 0.0},
        {"prior_temperature": 0.0},
    ],
)
def test_an_invalid_stage_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(UserError):
        replace(STAGE, **change)  # type: ignore[arg-type]


def test_spectral_weights_are_for_audio() -> None:
    config = preset("mnist", "paper", (1, 28, 28))
    with pytest.raises(UserError, match=r"`ordered\.spectral_weight` is for audio"):
        replace(config, ordered=replace(config.ordered, spectral_weight=1.0))
    with pytest.raises(UserError, match=r"`finetune\.spectral_weight` is for audio"):
        replace(config, finetune=replace(STAGE, spectral_weight=1.0))


@pytest.mark.parametrize("name", ["conditional_discriminator", "global_head"])
def test_some_settings_are_for_image_discriminators(name: str) -> None:
    config = preset("audiomnist", "best", (1, 15_360))
    assert config.finetune is not None
    with pytest.raises(UserError, match=rf"finetune\.{name}` is for images"):
        replace(config, finetune=replace(config.finetune, **{name: True}))
