"""The stages as values: pretrain (full codes) -> ordered (random truncation) -> prior (on the encoded data).

Behind them the decoder may be tuned against a network that tells its sounds or pictures from real ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from anytime.autoencoders.losses import Reduction
from anytime.autoencoders.truncation import Full, Truncation, Uniform
from anytime.core.errors import UserError
from anytime.sampling.gumbel import check_temperature

Padding = Literal["masked", "silence"]
"""What the end of a crop is that its recording does not reach: nothing, left out of the loss; or silence, to be learned."""
LRSchedule = Literal["constant", "cosine"]
"""A rate that stays, or one that falls to zero as half a cosine does."""


@dataclass(frozen=True, kw_only=True)
class AutoencoderStage:
    """One stage of the autoencoder: Adam, made anew for each stage."""

    epochs: int
    truncation: Truncation
    """The law of `keep`, drawn per sample."""
    reduction: Reduction = "mean"
    """How the terms of the loss weigh against each other."""
    select_by: Literal["total", "reconstruction"] = "total"
    """The validation loss whose smallest value selects the epoch that is kept."""
    batch: int = 128
    """Examples per step, over all ranks."""
    lr: float = 1e-3
    lr_schedule: LRSchedule = "constant"
    padding: Padding = "masked"
    """Of sounds shorter than a crop: masked from the loss, or learned as silence. Pictures have none."""
    reconstruction_weight: float = 1.0
    """Weight of the squared error against the quantizer's terms."""
    spectral_weight: float = 0.0
    """Weight of the multi-resolution STFT distance; of sounds only."""
    speed_perturb: float = 0.0
    """Recordings are played faster or slower by up to this share, anew in every epoch."""
    hflip: bool = False
    """Pictures are mirrored or not by chance, anew in every epoch."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)
        check_audio(self.spectral_weight, self.speed_perturb)
        if not self.reconstruction_weight > 0:
            raise UserError(f"a stage needs error above zero, not {self.reconstruction_weight}")


@dataclass(frozen=True, kw_only=True)
class FinetuneStage:
    """The decoder alone against a judge, a network that learns to tell what it makes from real data.

    Encoder and codebook stand still, so that codes keep their meaning. Adam for both, the rate falling to zero.
    """

    epochs: int
    truncation: Truncation
    """The law of `keep`, drawn per sample."""
    batch: int = 64
    """Examples per step, over all ranks."""
    lr: float = 2e-4
    """The decoder's."""
    discriminator_lr_ratio: float = 1.0
    """The judge's rate, as a multiple of it: a judge that learns no faster than what it judges is always one step behind."""
    padding: Padding = "masked"
    reconstruction_weight: float = 1.0
    """Weight of the squared error."""
    spectral_weight: float = 0.0
    """Weight of the multi-resolution STFT distance; of sounds only."""
    feature_matching_weight: float = 1.0
    """Weight of the distance between the judge's features of what is made and of the original."""
    adversarial_weight: float = 0.1
    """Weight of what the judge says of what is made; it grows from nothing over the first epoch, while the judge learns."""
    code_corruption: float = 0.1
    """Mean share of the codes that are replaced by another example's: a decoder that forgives the prior its errors."""
    prior_samples: int = 0
    """Samples of the prior in a batch beside the examples: they have no original, so that the judge alone speaks of them."""
    sample_pool: int = 50_000
    """How many samples are drawn for it, once."""
    prior_truncation: Truncation | None = None
    """The law of `keep` of these samples; None is that of the examples."""
    prior_temperature: float = 1.0
    """That they are drawn at."""
    conditional_discriminator: bool = False
    """Whether the judge of pictures is told what they are made of: the share of the codes, and whether the prior drew them. To
    one that is not told, samples of one kind make up for what another lacks: long ones become sharper than anything real."""
    global_head: bool = False
    """Whether the judge of pictures has a say on the whole picture beside one on every place of it."""
    ema_decay: float = 0.0
    """Memory, per step, of the running mean of the weights that is kept; 0 keeps the weights themselves."""
    augmentations: int = 1
    """Examples are encoded so often: recordings all but the first time at other places and speeds, pictures as they are, then
    mirrored, then moved by a pixel each way, as they are and mirrored."""
    speed_perturb: float = 0.0
    """How much faster or slower they are then, at most, as a share."""
    width: int = 32
    """Channels of the judge's first convolution."""
    brightness: float = 0.5
    """How much brighter or darker pictures are shown to the judge, at most, where black to white is 1."""
    cutout: float = 0.5
    """Share of the pictures that are shown to the judge with a square cut out."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)
        check_audio(self.spectral_weight, self.speed_perturb)
        if (
            min(self.reconstruction_weight, self.feature_matching_weight, self.adversarial_weight) < 0
            or not 0 <= self.code_corruption <= 0.5
        ):
            raise UserError("tune stage: weights must be at least 0, swapped between 0 and 0.5")
        if min(self.augmentations, self.width, self.sample_pool) < 1 or self.prior_samples < 0:
            raise UserError("tune stage: views, width and bank must be at least 1, drawn at least 0")
        if not (0 <= self.brightness <= 1 and 0 <= self.cutout <= 1):
            raise UserError(f"tune stage: lighter and cut_out must be between 0 and 1, not {self.brightness} and {self.cutout}")
        if not self.discriminator_lr_ratio > 0:
            raise UserError(f"tune stage: lead must be above 0, not {self.discriminator_lr_ratio}")
        check_temperature(self.prior_temperature, "tune stage: drawn_temperature")
        check_ema_decay(self.ema_decay)


@dataclass(frozen=True, kw_only=True)
class VAEStage:
    """One stage of a VAE: as the autoencoder's, on the evidence bound."""

    epochs: int
    truncation: Truncation
    """The law of `keep`, drawn per sample."""
    batch: int = 128
    """Examples per step, over all ranks."""
    lr: float = 1e-3

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)


@dataclass(frozen=True, kw_only=True)
class PriorStage:
    """The prior: AdamW, a linear warm-up, then a rate that falls or stays."""

    epochs: int
    batch: int = 128
    """Examples per step, over all ranks."""
    lr: float = 2e-3
    """Rate at the end of the warm-up."""
    warmup: int = 3000
    """Steps of warm-up from 1e-7; at most a quarter of all steps, so that short schedules reach their rate."""
    lr_schedule: Literal["sqrt", "constant", "cosine"] = "sqrt"
    """After the warm-up: falling with the square root of the step, constant, or falling to zero as half a cosine does."""
    weight_decay: float = 0.1
    """Decoupled; without it this is Adam."""
    ema_decay: float = 0.0
    """Memory, per step, of the running mean of the weights that is kept; 0 keeps the weights themselves."""
    augmentations: int = 1
    """Examples are encoded so often: recordings all but the first time at other places and speeds, pictures as they are, then
    mirrored, then moved by a pixel each way, as they are and mirrored. An epoch sees all of them."""
    speed_perturb: float = 0.0
    """How much faster or slower they are then, at most, as a share."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)
        check_audio(0.0, self.speed_perturb)
        if self.augmentations < 1:
            raise UserError(f"prior stage: views must be at least 1, not {self.augmentations}")
        if self.warmup < 1 or self.weight_decay < 0:
            raise UserError("prior stage: warmup must be at least 1 and weight_decay at least 0")
        check_ema_decay(self.ema_decay)


def check_schedule(epochs: int, batch: int, lr: float) -> None:
    if epochs < 1 or batch < 1 or not lr > 0:
        raise UserError(f"a stage needs epochs, batch and lr above zero, not {epochs}, {batch}, {lr}")


def check_audio(spectral_weight: float, speed_perturb: float) -> None:
    if spectral_weight < 0 or not 0 <= speed_perturb <= 0.5:
        raise UserError(
            f"a stage needs spectral of at least 0 and speed between 0 and 0.5, not {spectral_weight} and {speed_perturb}"
        )


def check_ema_decay(ema_decay: float) -> None:
    if not 0 <= ema_decay < 1:
        raise UserError(f"a stage needs average of at least 0 and below 1, not {ema_decay}")


PRETRAIN = AutoencoderStage(epochs=200, truncation=Full())  # keep = length: an ordinary VQ-VAE
ORDERED = AutoencoderStage(epochs=200, truncation=Uniform())  # keep ~ U{1..length}: codes fall into order
PRIOR = PriorStage(epochs=50)
PIXELCNN = PriorStage(epochs=50, lr=3e-4, warmup=1, lr_schedule="constant", weight_decay=0.0)  # plain Adam


def warmup_lr(stage: PriorStage, step: int, steps: int) -> float:
    """Linear from 1e-7 to `rate` over the warm-up, then rate · sqrt(warmup / step), `rate` for good, or a falling cosine."""
    warmup = max(1, min(stage.warmup, steps // 4))
    if step < warmup:
        return 1e-7 + (stage.lr - 1e-7) * step / warmup
    if stage.lr_schedule == "sqrt":
        return float(stage.lr * (warmup / step) ** 0.5)
    return decayed_lr(stage.lr, stage.lr_schedule, step - warmup, steps - warmup)


def decayed_lr(lr: float, lr_schedule: LRSchedule, step: int, steps: int) -> float:
    """`rate` for good, or rate (1 + cos π step / steps) / 2.

    >>> decayed_lr(1e-3, "constant", 5, 10), decayed_lr(1e-3, "cosine", 0, 10), decayed_lr(1e-3, "cosine", 5, 10)
    (0.001, 0.001, 0.0005)
    """
    return lr if lr_schedule == "constant" else lr * (1 + math.cos(math.pi * step / steps)) / 2
