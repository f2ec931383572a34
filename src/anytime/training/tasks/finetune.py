"""Tuning the decoder against a judge: hinge loss, the judge's features, and the error that it was trained with before.

The encoder and the codebook stand still, so that codes keep their meaning: whatever was encoded, and whatever prior was trained
on it, stays valid. The data come with their codes. Which judge is passed in is all that depends on the kind of data.
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
from anytime.data.loader import Loader, to_float, valid_mask
from anytime.training.discriminators import DiscriminatorOutput
from anytime.training.ema import EMA
from anytime.training.stages import FinetuneStage, decayed_lr
from anytime.training.tasks.autoencoder import (
    KeepSampler,
    Metrics,
    code_corruption,
    global_rows,
    optimizer_options,
    spectral_loss,
    validation_batches,
    validation_keeps,
)

Augmentation = Callable[[Tensor, Tensor], Tensor]
"""Data and [batch, 8] uniform numbers -> the data as the judge sees them, made and real ones alike; gradients pass."""
_AUGMENT, _PRIOR, _PRIOR_AUGMENT = 3, 6, 7  # counters of their own: `keep` and swaps are drawn from the same seed
BETAS = (0.5, 0.9)  # little momentum: what was right against the judge of a hundred steps ago is not right today


class EncodedExamples(NamedTuple):
    """Data and their codes, row by row."""

    x: Tensor  # [n, …], bytes or 16-bit sound
    codes: Tensor  # [n, length]


class FinetuneObjective(nn.Module):
    """Both sides of the game in one loss: the judge's and the decoder's, each with no gradient into the other's weights.

    The first rows of `codes` are those of `x`, of which all terms can speak; the rest, drawn from the prior, have a judge only.
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
        real, stage, rows = to_float(x), self.stage, len(x)
        decoded = self._decode(truncate(self.model.quantizer.lookup(codes), keep))
        fake, mask = decoded[:rows], valid_mask(x) if stage.padding == "masked" else None
        reconstruction_weight = masked_mse(real, fake, mask)
        if mask is not None:  # the real one is silent where it is padded
            decoded = torch.cat([fake * mask, decoded[rows:]])
        index = torch.arange(len(codes), device=codes.device)
        conditional_discriminator = (
            torch.stack([keep / self.model.length, (index >= rows).float()], 1) if stage.conditional_discriminator else None
        )
        # Beside each that is made the judge sees a real one, changed alike and said to be of the same kind.
        disc_input, fake_disc_input = (
            self._discriminator_input(each, uniforms, conditional_discriminator) for each in (real[index % rows], decoded)
        )
        real_output, fake_output, generator_output = (
            self.discriminator(disc_input),
            self.discriminator(fake_disc_input.detach()),
            self.frozen(fake_disc_input),
        )
        discriminator_loss = hinge(real_output, fake_output)
        generator_loss = -mean_logit(generator_output)
        feature_matching = feature_matching_loss(generator_output, real_output, rows)
        total = (
            discriminator_loss
            + stage.reconstruction_weight * reconstruction_weight
            + stage.feature_matching_weight * feature_matching
            + adversarial_warmup * stage.adversarial_weight * generator_loss
        )
        parts = [discriminator_loss, generator_loss, feature_matching, reconstruction_weight]
        if stage.spectral_weight:
            parts.append(spectral_loss(real, fake, mask))
            total = total + stage.spectral_weight * parts[-1]
        return torch.stack([total, *parts])

    def train(self, mode: bool = True) -> FinetuneObjective:
        """The decoder is used as it will be: with the norms of its earlier training, whatever else is in the batch."""
        super().train(mode)
        self.decoder.eval()
        return self

    def _discriminator_input(
        self, x: Tensor, uniforms: Float[Tensor, "rows 8"], conditional_discriminator: Float[Tensor, "rows 2"] | None
    ) -> Tensor:
        """What the judge sees; what it is told is on further planes of the picture."""
        disc_input = self.augment(x, uniforms)
        if conditional_discriminator is None:
            return disc_input
        return torch.cat(
            [
                disc_input,
                conditional_discriminator.to(disc_input.dtype)[:, :, None, None].expand(-1, -1, *disc_input.shape[2:]),
            ],
            1,
        )

    def _decode(self, latents: Float[Tensor, "all length dim"]) -> Float[Tensor, "all ..."]:
        config = self.model.config
        x: Tensor = self.decoder(to_features(latents, config.layout, config.spatial_shape))
        return x.float()


def frozen_copy(network: nn.Module) -> nn.Module:
    """The same network on the same weights, through which gradients pass but into which none go."""
    clone = copy.deepcopy(network)
    for own, other in zip(clone.parameters(), network.parameters(), strict=True):
        own.data = other.data  # shared: what an optimiser does to the one shows in the other
        own.requires_grad_(False)
    return clone


def hinge(real: DiscriminatorOutput, fake: DiscriminatorOutput) -> Float[Tensor, ""]:
    """The judge's loss: real things should score above 1, made ones below −1."""
    terms = [F.relu(1 - r).mean() + F.relu(1 + m).mean() for r, m in zip(real.logits, fake.logits, strict=True)]
    return torch.stack(terms).mean()


def mean_logit(output: DiscriminatorOutput) -> Float[Tensor, ""]:
    return torch.stack([logit.mean() for logit in output.logits]).mean()


def feature_matching_loss(fake: DiscriminatorOutput, real: DiscriminatorOutput, rows: int) -> Float[Tensor, ""]:
    """Mean over the judge's layers of Σ|f(made) − f(real)| / Σ|f(real)|, of the first rows, which have an original."""
    terms = []
    for one, other in zip(fake.features, real.features, strict=True):
        target = other[:rows].detach().float()
        terms.append((one[:rows].float() - target).abs().mean() / target.abs().mean().clamp(min=1e-6))
    return torch.stack(terms).mean()


def masked_mse(real: Tensor, fake: Tensor, mask: Tensor | None) -> Float[Tensor, ""]:
    size = real[0].numel() if mask is None else mask.flatten(1).sum(1).clamp(min=1)
    return (squared_error(real, fake, mask) / size).mean()


class FinetuneTask:
    """The stage `tune`. `change` is what is done to all that the judge sees; `bank` are codes that the prior has drawn."""

    name = "finetune"
    keeps_last = True  # the judge's loss does not say how good the decoder is, and the error is not what is wanted

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
        self.stage, self.model, self.validation, self.seed, self.sample_pool = stage, model, validation, seed, sample_pool
        self.device = model.quantizer.codebook.device
        for part in (model.encoder, model.quantizer):
            part.requires_grad_(False)
        self.module, self.ema = model.decoder, EMA(model.decoder, stage.ema_decay)
        discriminator.to(self.device)
        if self.device.type == "cuda":
            discriminator.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        live = self.ema.live
        self.auxiliary = nn.ModuleDict({"discriminator": discriminator, **({"decoder": live} if self.ema.enabled else {})})
        self.objective = FinetuneObjective(model, live, discriminator, stage, augment)
        self.loss_names = (
            "loss",
            "discriminator",
            "adversarial",
            "feature_matching",
            "reconstruction",
            *(["spectral"] if stage.spectral_weight else []),
        )
        self.train = train
        rows = torch.arange(len(train.x), device=self.device)
        self.loader = Loader(rows, stage.batch, seed, distributed.rank(), distributed.world_size())
        self.epochs, self.steps_per_epoch = stage.epochs, self.loader.steps_per_epoch
        prior_samples, steps = stage.prior_truncation or stage.truncation, self.steps_per_epoch
        self.keeps = KeepSampler(stage.truncation, model.length, steps, seed, self.device)
        self.prior_keeps = KeepSampler(prior_samples, model.length, steps, random.derive(seed, "drawn"), self.device)

    def optimizer(self) -> torch.optim.Optimizer:
        decoder, discriminator = (list(part.parameters()) for part in (self.objective.decoder, self.objective.discriminator))
        # A rate each: where it is a tensor, one that both shared would hold the judge's alone.
        discriminator_group = {
            "params": discriminator,
            "lr_scale": self.stage.discriminator_lr_ratio,
            **optimizer_options(discriminator[0], self.stage.lr),
        }
        return torch.optim.Adam(
            [{"params": decoder}, discriminator_group], betas=BETAS, **optimizer_options(decoder[0], self.stage.lr)
        )

    def lr(self, step: int) -> float:
        return decayed_lr(self.stage.lr, "cosine", step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        rows = self.loader.batch_at(step)
        spatial_shape = global_rows(len(rows), self.device)
        x, codes = (part[rows.to(part.device)].to(self.device) for part in self.train)
        codes = code_corruption(codes.long(), self.stage.code_corruption, self.seed, step)
        batch: tuple[Tensor, ...] = codes, self.keeps.at(step, len(rows)), self._uniforms(_AUGMENT, step, spatial_shape)
        if self.sample_pool is not None:
            batch = tuple(torch.cat(parts) for parts in zip(batch, self._prior_batch(self.sample_pool, step), strict=True))
        adversarial_warmup = torch.tensor(min(1.0, (step + 1) / self.steps_per_epoch))
        return x, *batch, adversarial_warmup.to(self.device, non_blocking=True)

    def _prior_batch(self, sample_pool: Int[Tensor, "pool length"], step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, `keep` and numbers of this rank's part of the prior's samples for a step."""
        spatial_shape = global_rows(self.stage.prior_samples // distributed.world_size(), self.device)
        which = (random.uniform(self.seed, _PRIOR, step, spatial_shape) * len(sample_pool)).long()
        return (
            sample_pool[which].long(),
            self.prior_keeps.at(step, len(spatial_shape)),
            self._uniforms(_PRIOR_AUGMENT, step, spatial_shape),
        )

    def _uniforms(self, counter: int, step: int, spatial_shape: Int[Tensor, " rows"]) -> Float[Tensor, "rows 8"]:
        return random.uniform(self.seed, counter, step, spatial_shape[:, None], torch.arange(8, device=self.device))

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        losses: Tensor = objective(*inputs)
        return losses

    def after_step(self, step: int) -> None:
        self.ema.update(step)

    @torch.no_grad()
    def validate(self) -> Metrics:
        """The same losses on held-out data, unchanged and with their own codes, of the decoder that plays."""
        x, codes = self.validation
        keeps = validation_keeps(self.stage.truncation, self.model.length, len(x)).to(self.device)
        sums = torch.zeros(len(self.loss_names), dtype=torch.float64, device=self.device)
        midpoint = torch.full((1, 8), 0.5, device=self.device)
        for rows in validation_batches(len(x)):
            given = x[rows].to(self.device), codes[rows].to(self.device).long(), keeps[rows]
            sums += self.objective(*given, midpoint.expand(len(given[0]), -1), midpoint.new_ones(())).double() * len(given[0])
        return dict(zip(self.loss_names, (distributed.all_reduce_sum(sums) / len(x)).tolist(), strict=True))
