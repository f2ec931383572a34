"""Fine-tuning the decoder against a discriminator: hinge loss, feature matching, and the reconstruction error.

The encoder and the codebook are frozen, so that codes keep their meaning and the prior stays valid.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int16, UInt8
from torch import Tensor, nn

from anytime.autoencoders.layout import to_features
from anytime.autoencoders.losses import squared_error
from anytime.autoencoders.truncation import truncate
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import distributed, random
from anytime.data.image_shards import AugmentedShards
from anytime.data.loader import to_float, valid_mask
from anytime.training.discriminators import DiscriminatorOutput
from anytime.training.ema import EMA
from anytime.training.schedules import decayed_lr
from anytime.training.stages import FinetuneStage
from anytime.training.tasks.autoencoder import spectral_loss
from anytime.training.tasks.task import KeepSampler, Metrics, Task, global_rows, optimizer_options, validation_keeps

Augmentation = Callable[[Tensor, Tensor], Tensor]
"""Augments real and decoded data alike, given the data and uniform numbers [batch, 8]; differentiable."""
# Counters that keep random streams of one seed apart.
_AUGMENT, _CORRUPTION_RATES, _CORRUPTIONS, _PRIOR, _PRIOR_AUGMENT = 3, 4, 5, 6, 7
ADVERSARIAL_WEIGHT = 0.1
BETAS = (0.5, 0.9)  # little momentum: a gradient against the discriminator of a hundred steps ago is out of date


class EncodedExamples(NamedTuple):
    """Examples and their codes."""

    x: Tensor | AugmentedShards  # [n, ...], uint8 images or int16 audio
    codes: Tensor  # [n, length]


class FinetuneObjective(nn.Module):
    """The discriminator's and the decoder's loss in one sum, each without a gradient into the other's weights.

    The first rows of `codes` are those of `x`. The rest are prior samples, to which only the adversarial loss applies.
    """

    def __init__(
        self, model: VQVAE, decoder: nn.Module, discriminator: nn.Module, stage: FinetuneStage, augment: Augmentation
    ) -> None:
        super().__init__()
        self.model, self.decoder, self.discriminator, self.stage, self.augment = model, decoder, discriminator, stage, augment
        self.frozen = frozen_copy(discriminator)

    def forward(
        self,
        x: UInt8[Tensor, "batch ..."] | Int16[Tensor, "batch ..."],
        codes: Int[Tensor, "all length"],
        keep: Int[Tensor, " all"],
        uniforms: Float[Tensor, "all 8"],
        adversarial_warmup: Float[Tensor, ""],
    ) -> Float[Tensor, " losses"]:
        """Return the total and its parts, in the order of `FinetuneTask.loss_names`."""
        real, stage, rows = to_float(x), self.stage, len(x)
        decoded = self._decode(truncate(self.model.quantizer.lookup(codes), keep))
        fake, mask = decoded[:rows], valid_mask(x) if stage.padding == "masked" else None
        reconstruction = masked_mse(real, fake, mask)
        if mask is not None:  # the real recording is silent where it is padded
            decoded = torch.cat([fake * mask, decoded[rows:]])
        index = torch.arange(len(codes), device=codes.device)
        condition = None
        if stage.conditional_discriminator:
            condition = torch.stack([keep / self.model.length, (index >= rows).float()], 1)
        # Each decoded example is paired with a real one that has the same augmentation and condition.
        real_input, fake_input = (
            self._discriminator_input(each, uniforms, condition) for each in (real[index % rows], decoded)
        )  # fmt: skip
        real_output, fake_output = self.discriminator(real_input), self.discriminator(fake_input.detach())
        generator_output = self.frozen(fake_input)
        discriminator_loss, generator_loss = hinge(real_output, fake_output), -mean_logit(generator_output)
        feature_matching = feature_matching_loss(generator_output, real_output, rows)
        total = (
            discriminator_loss
            + stage.reconstruction_weight * reconstruction
            + feature_matching
            + adversarial_warmup * ADVERSARIAL_WEIGHT * generator_loss
        )
        parts = [discriminator_loss, generator_loss, feature_matching, reconstruction]
        if stage.spectral_weight:
            parts.append(spectral_loss(real, fake, mask))
            total = total + stage.spectral_weight * parts[-1]
        return torch.stack([total, *parts])

    def train(self, mode: bool = True) -> FinetuneObjective:
        """Train the discriminator; the decoder keeps the batch norm statistics of its earlier training."""
        super().train(mode)
        self.decoder.eval()
        return self

    def _discriminator_input(
        self, x: Tensor, uniforms: Float[Tensor, "rows 8"], condition: Float[Tensor, "rows 2"] | None
    ) -> Tensor:
        """Augment the data and append the condition as further channels."""
        augmented = self.augment(x, uniforms)
        if condition is None:
            return augmented
        channels = condition.to(augmented.dtype)[:, :, None, None].expand(-1, -1, *augmented.shape[2:])
        return torch.cat([augmented, channels], 1)

    def _decode(self, latents: Float[Tensor, "all length dim"]) -> Float[Tensor, "all ..."]:
        config = self.model.config
        x: Tensor = self.decoder(to_features(latents, config.layout, config.spatial_shape))
        return x.float()


def frozen_copy(network: nn.Module) -> nn.Module:
    """Return a copy that shares the weights: gradients pass through it but not into it."""
    clone = copy.deepcopy(network)
    for own, other in zip(clone.parameters(), network.parameters(), strict=True):
        own.data = other.data  # shared: an optimizer's update of the one shows in the other
        own.requires_grad_(False)
    return clone


def hinge(real: DiscriminatorOutput, fake: DiscriminatorOutput) -> Float[Tensor, ""]:
    """Return the discriminator's hinge loss: logits of real data above 1, of fakes below −1."""
    terms = [F.relu(1 - r).mean() + F.relu(1 + f).mean() for r, f in zip(real.logits, fake.logits, strict=True)]
    return torch.stack(terms).mean()


def mean_logit(output: DiscriminatorOutput) -> Float[Tensor, ""]:
    """Return the mean over the heads of the mean logit."""
    return torch.stack([logit.mean() for logit in output.logits]).mean()


def feature_matching_loss(fake: DiscriminatorOutput, real: DiscriminatorOutput, rows: int) -> Float[Tensor, ""]:
    """Return the mean over layers of Σ|f(fake) − f(real)| / Σ|f(real)|, for the first `rows`, which have an original."""
    terms = []
    for one, other in zip(fake.features, real.features, strict=True):
        target = other[:rows].detach().float()
        terms.append((one[:rows].float() - target).abs().mean() / target.abs().mean().clamp(min=1e-6))
    return torch.stack(terms).mean()


def masked_mse(real: Tensor, fake: Tensor, mask: Tensor | None) -> Float[Tensor, ""]:
    """Return the mean squared error over the values that the mask keeps."""
    size = real[0].numel() if mask is None else mask.flatten(1).sum(1).clamp(min=1)
    return (squared_error(real, fake, mask) / size).mean()


def corrupt_codes(codes: Int[Tensor, "batch length"], mean: float, seed: int, step: int) -> Int[Tensor, "batch length"]:
    """Replace some codes by those of the next example; each row has its own share, uniform from 0 to twice the mean."""
    if not mean or len(codes) < 2:
        return codes
    rows, position = global_rows(len(codes), codes.device), torch.arange(codes.shape[1], device=codes.device)
    corruption_rate = 2 * mean * random.uniform(seed, _CORRUPTION_RATES, step, rows)[:, None]
    corrupted = random.uniform(seed, _CORRUPTIONS, step, rows[:, None], position) < corruption_rate
    return torch.where(corrupted, codes.roll(1, 0), codes)


class FinetuneTask(Task):
    """The stage "finetune". `sample_pool` holds codes sampled from the prior."""

    name = "finetune"
    objective: FinetuneObjective
    keeps_last = True  # neither the discriminator's loss nor the error says how good the decoder is

    def __init__(
        self,
        stage: FinetuneStage,
        model: VQVAE,
        discriminator: nn.Module,
        augment: Augmentation,
        train: EncodedExamples,
        validation: EncodedExamples,
        seed: int,
        sample_pool: Int[Tensor, "pool length"] | None = None,
    ) -> None:
        device = model.quantizer.codebook.device
        super().__init__(stage.epochs, stage.batch, torch.arange(len(train.x), device=device), seed, device)
        self.stage, self.model, self.train, self.validation = stage, model, train, validation
        self.sample_pool = sample_pool
        for part in (model.encoder, model.quantizer):
            part.requires_grad_(False)
        self.module, self.ema = model.decoder, EMA(model.decoder, stage.ema_decay)
        discriminator.to(self.device)
        if self.device.type == "cuda":
            discriminator.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        live = self.ema.live
        self.auxiliary = nn.ModuleDict({"discriminator": discriminator, **({"decoder": live} if self.ema.enabled else {})})
        self.objective = FinetuneObjective(model, live, discriminator, stage, augment)
        spectral = ["spectral"] if stage.spectral_weight else []
        self.loss_names = ("loss", "discriminator", "adversarial", "feature_matching", "reconstruction", *spectral)
        prior_truncation, steps = stage.prior_truncation or stage.truncation, self.steps_per_epoch
        self.keeps = KeepSampler(stage.truncation, model.length, steps, seed, self.device)
        self.prior_keeps = KeepSampler(prior_truncation, model.length, steps, random.derive(seed, "prior samples"), self.device)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return one Adam with a group each for the decoder and the discriminator."""
        decoder, discriminator = (list(part.parameters()) for part in (self.objective.decoder, self.objective.discriminator))
        # Each group has its own learning rate tensor: a shared one would hold the discriminator's rate alone.
        options, discriminator_options = (optimizer_options(part[0], self.stage.lr) for part in (decoder, discriminator))
        discriminator_options |= {"params": discriminator, "lr_scale": self.stage.discriminator_lr_ratio}
        return torch.optim.Adam([{"params": decoder}, discriminator_options], betas=BETAS, **options)

    def lr(self, step: int) -> float:
        """Return the decoder's learning rate."""
        return decayed_lr(self.stage.lr, "cosine", step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return examples, codes, `keep`, augmentation numbers and the adversarial warm-up, prior samples last."""
        rows = self.loader.batch_at(step)
        x, codes = (part[rows.to(part.device)].to(self.device) for part in self.train)
        codes = corrupt_codes(codes.long(), self.stage.code_corruption, self.seed, step)
        uniforms = self._uniforms(_AUGMENT, step, global_rows(len(rows), self.device))
        batch: tuple[Tensor, ...] = codes, self.keeps.at(step, len(rows)), uniforms
        if self.sample_pool is not None:
            batch = tuple(torch.cat(parts) for parts in zip(batch, self._prior_batch(self.sample_pool, step), strict=True))
        adversarial_warmup = torch.tensor(min(1.0, (step + 1) / self.steps_per_epoch))
        return x, *batch, adversarial_warmup.to(self.device, non_blocking=True)

    def _prior_batch(self, sample_pool: Int[Tensor, "pool length"], step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return codes, `keep` and augmentation numbers of this rank's prior samples."""
        rows = global_rows(self.stage.prior_samples // distributed.world_size(), self.device)
        which = (random.uniform(self.seed, _PRIOR, step, rows) * len(sample_pool)).long()
        return sample_pool[which].long(), self.prior_keeps.at(step, len(rows)), self._uniforms(_PRIOR_AUGMENT, step, rows)

    def _uniforms(self, counter: int, step: int, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows 8"]:
        return random.uniform(self.seed, counter, step, rows[:, None], torch.arange(8, device=self.device))

    def after_step(self, step: int) -> None:
        """Update the EMA of the decoder's weights."""
        self.ema.update(step)

    def validate(self) -> Metrics:
        """Return the losses of the live decoder on held-out data, without corruption or augmentation."""
        x, codes = self.validation
        assert isinstance(x, Tensor)
        keeps = validation_keeps(self.stage.truncation, self.model.length, len(x)).to(self.device)
        midpoint = torch.full((1, 8), 0.5, device=self.device)

        def losses(rows: slice) -> Tensor:
            given = x[rows].to(self.device), codes[rows].to(self.device).long(), keeps[rows]
            out: Tensor = self.objective(*given, midpoint.expand(len(given[0]), -1), midpoint.new_ones(()))
            return out

        return self.mean_losses(len(x), losses)
