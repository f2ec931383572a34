"""Settings of the stages: pretrain (full codes), ordered (random truncation), prior (on the encoded data), finetune.

The optional last stage fine-tunes the decoder against a discriminator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anytime.autoencoders.losses import Reduction
from anytime.autoencoders.truncation import Truncation
from anytime.core.errors import UserError
from anytime.sampling.gumbel import check_temperature
from anytime.training.schedules import LRSchedule, WarmupSchedule

Padding = Literal["masked", "silence"]
"""Samples past the end of a recording shorter than the crop: masked from the loss, or learned as silence."""


@dataclass(frozen=True, kw_only=True)
class AutoencoderStage:
    """One stage of the autoencoder, with its own Adam."""

    epochs: int
    truncation: Truncation
    """Distribution of `keep`, sampled per example."""
    reduction: Reduction = "mean"
    """Whether the terms of the loss are means or sums."""
    select_by: Literal["total", "reconstruction"] = "total"
    """The validation loss that selects the epoch whose weights are kept."""
    batch: int = 128
    """Examples per step, over all ranks."""
    lr: float = 1e-3
    lr_schedule: LRSchedule = "constant"
    padding: Padding = "masked"
    """Padding of short recordings; images have none."""
    reconstruction_weight: float = 1.0
    """Weight of the squared error against the quantizer's terms."""
    spectral_weight: float = 0.0
    """Weight of the multi-resolution STFT distance, for audio."""
    speed_perturb: float = 0.0
    """Largest relative change of a recording's speed, sampled anew in every epoch."""
    hflip: bool = False
    """Flip images horizontally at random, anew in every epoch."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)
        check_audio(self.spectral_weight, self.speed_perturb)
        if not self.reconstruction_weight > 0:
            raise UserError(f"a stage needs `reconstruction_weight` above zero, not {self.reconstruction_weight}")


@dataclass(frozen=True, kw_only=True)
class PriorStage:
    """The prior: AdamW with a linear warm-up."""

    epochs: int
    batch: int = 128
    """Examples per step, over all ranks."""
    lr: float = 2e-3
    """Learning rate at the end of the warm-up."""
    warmup: int = 3000
    """Steps of linear warm-up; at most a quarter of all steps."""
    lr_schedule: WarmupSchedule = "sqrt"
    """After the warm-up: decay with the square root of the step, stay constant, or decay to zero as a half cosine."""
    weight_decay: float = 0.1
    """Decoupled weight decay; 0 is Adam."""
    ema_decay: float = 0.0
    """Decay per step of the EMA of the weights; 0 keeps the weights themselves."""
    augmentations: int = 1
    """Encode the data N times: recordings cropped and played anew, images flipped and shifted. An epoch sees all of them."""
    speed_perturb: float = 0.0
    """Largest relative change of a recording's speed in those augmentations."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)
        check_audio(0.0, self.speed_perturb)
        check_ema_decay(self.ema_decay)
        if min(self.augmentations, self.warmup) < 1 or self.weight_decay < 0:
            raise UserError("the prior stage needs `augmentations` and `warmup` of at least 1 and `weight_decay` of at least 0")


@dataclass(frozen=True, kw_only=True)
class FinetuneStage:
    """The decoder alone against a discriminator: Adam for both, with the cosine schedule.

    The encoder and the codebook are frozen, so that codes keep their meaning.
    """

    epochs: int
    truncation: Truncation
    """Distribution of `keep`, sampled per example."""
    batch: int = 64
    """Examples per step, over all ranks."""
    lr: float = 2e-4
    """Learning rate of the decoder."""
    discriminator_lr_ratio: float = 1.0
    """Learning rate of the discriminator, as a multiple of the decoder's."""
    padding: Padding = "masked"
    """Padding of short recordings; images have none."""
    reconstruction_weight: float = 1.0
    """Weight of the squared error."""
    spectral_weight: float = 0.0
    """Weight of the multi-resolution STFT distance, for audio."""
    code_corruption: float = 0.1
    """Mean share of codes replaced by another example's: the decoder learns to tolerate errors of the prior."""
    prior_samples: int = 0
    """Prior samples per batch beside the examples; only the adversarial loss applies to them."""
    prior_truncation: Truncation | None = None
    """Distribution of `keep` for prior samples; null is that of the examples."""
    prior_temperature: float = 1.0
    """Temperature of the prior samples."""
    conditional_discriminator: bool = False
    """Condition the image discriminator on the share of codes kept and on whether the prior sampled them.

    Without it, samples of one kind make up for what another lacks: long ones become sharper than real images.
    """
    global_head: bool = False
    """Give the image discriminator a logit for the whole image beside those for each position."""
    ema_decay: float = 0.0
    """Decay per step of the EMA of the decoder's weights; 0 keeps the weights themselves."""
    augmentations: int = 1
    """Encode the data N times: recordings cropped and played anew, images flipped and shifted."""
    speed_perturb: float = 0.0
    """Largest relative change of a recording's speed in those augmentations."""
    width: int = 32
    """Channels of the discriminator's first convolution."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)
        check_audio(self.spectral_weight, self.speed_perturb)
        check_ema_decay(self.ema_decay)
        check_temperature(self.prior_temperature, "finetune.prior_temperature")
        if self.reconstruction_weight < 0 or not 0 <= self.code_corruption <= 0.5:
            raise UserError(
                "the finetune stage needs `reconstruction_weight` of at least 0 and `code_corruption` from 0 to 0.5"
            )
        if min(self.augmentations, self.width) < 1 or self.prior_samples < 0:
            raise UserError("the finetune stage needs `augmentations` and `width` of at least 1, `prior_samples` of at least 0")
        if not self.discriminator_lr_ratio > 0:
            raise UserError(f"`finetune.discriminator_lr_ratio` must be above 0, not {self.discriminator_lr_ratio}")


def check_schedule(epochs: int, batch: int, lr: float) -> None:
    """Refuse a stage that would train nothing."""
    if epochs < 1 or batch < 1 or not lr > 0:
        raise UserError(f"a stage needs `epochs`, `batch` and `lr` above zero, not {epochs}, {batch}, {lr}")


def check_audio(spectral_weight: float, speed_perturb: float) -> None:
    """Refuse audio settings outside their range."""
    if spectral_weight < 0 or not 0 <= speed_perturb <= 0.5:
        values = f"{spectral_weight} and {speed_perturb}"
        raise UserError(f"a stage needs `spectral_weight` of at least 0 and `speed_perturb` from 0 to 0.5, not {values}")


def check_ema_decay(ema_decay: float) -> None:
    """Refuse a decay that never forgets."""
    if not 0 <= ema_decay < 1:
        raise UserError(f"a stage needs `ema_decay` of at least 0 and below 1, not {ema_decay}")
