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
Schedule = Literal["constant", "cosine"]
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
    rate: float = 1e-3
    schedule: Schedule = "constant"
    padding: Padding = "masked"
    """Of sounds shorter than a crop: masked from the loss, or learned as silence. Pictures have none."""
    error: float = 1.0
    """Weight of the squared error against the quantizer's terms."""
    spectral: float = 0.0
    """Weight of the multi-resolution STFT distance; of sounds only."""
    speed: float = 0.0
    """Recordings are played faster or slower by up to this share, anew in every epoch."""
    mirrored: bool = False
    """Pictures are mirrored or not by chance, anew in every epoch."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.rate)
        check_sounds(self.spectral, self.speed)
        if not self.error > 0:
            raise UserError(f"a stage needs error above zero, not {self.error}")


@dataclass(frozen=True, kw_only=True)
class TuneStage:
    """The decoder alone against a judge, a network that learns to tell what it makes from real data.

    Encoder and codebook stand still, so that codes keep their meaning. Adam for both, the rate falling to zero.
    """

    epochs: int
    truncation: Truncation
    """The law of `keep`, drawn per sample."""
    batch: int = 64
    """Examples per step, over all ranks."""
    rate: float = 2e-4
    """The decoder's."""
    lead: float = 1.0
    """The judge's rate, as a multiple of it: a judge that learns no faster than what it judges is always one step behind."""
    padding: Padding = "masked"
    error: float = 1.0
    """Weight of the squared error."""
    spectral: float = 0.0
    """Weight of the multi-resolution STFT distance; of sounds only."""
    matching: float = 1.0
    """Weight of the distance between the judge's features of what is made and of the original."""
    adversarial: float = 0.1
    """Weight of what the judge says of what is made; it grows from nothing over the first epoch, while the judge learns."""
    swapped: float = 0.1
    """Mean share of the codes that are replaced by another example's: a decoder that forgives the prior its errors."""
    drawn: int = 0
    """Samples of the prior in a batch beside the examples: they have no original, so that the judge alone speaks of them."""
    bank: int = 50_000
    """How many samples are drawn for it, once."""
    drawn_truncation: Truncation | None = None
    """The law of `keep` of these samples; None is that of the examples."""
    drawn_temperature: float = 1.0
    """That they are drawn at."""
    told: bool = False
    """Whether the judge of pictures is told what they are made of: the share of the codes, and whether the prior drew them. To
    one that is not told, samples of one kind make up for what another lacks: long ones become sharper than anything real."""
    whole: bool = False
    """Whether the judge of pictures has a say on the whole picture beside one on every place of it."""
    average: float = 0.0
    """Memory, per step, of the running mean of the weights that is kept; 0 keeps the weights themselves."""
    views: int = 1
    """Examples are encoded so often: recordings all but the first time at other places and speeds, pictures as they are, then
    mirrored, then moved by a pixel each way, as they are and mirrored."""
    speed: float = 0.0
    """How much faster or slower they are then, at most, as a share."""
    width: int = 32
    """Channels of the judge's first convolution."""
    lighter: float = 0.5
    """How much brighter or darker pictures are shown to the judge, at most, where black to white is 1."""
    cut_out: float = 0.5
    """Share of the pictures that are shown to the judge with a square cut out."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.rate)
        check_sounds(self.spectral, self.speed)
        if min(self.error, self.matching, self.adversarial) < 0 or not 0 <= self.swapped <= 0.5:
            raise UserError("tune stage: weights must be at least 0, swapped between 0 and 0.5")
        if min(self.views, self.width, self.bank) < 1 or self.drawn < 0:
            raise UserError("tune stage: views, width and bank must be at least 1, drawn at least 0")
        if not (0 <= self.lighter <= 1 and 0 <= self.cut_out <= 1):
            raise UserError(f"tune stage: lighter and cut_out must be between 0 and 1, not {self.lighter} and {self.cut_out}")
        if not self.lead > 0:
            raise UserError(f"tune stage: lead must be above 0, not {self.lead}")
        check_temperature(self.drawn_temperature, "tune stage: drawn_temperature")
        check_average(self.average)


@dataclass(frozen=True, kw_only=True)
class VAEStage:
    """One stage of a VAE: as the autoencoder's, on the evidence bound."""

    epochs: int
    truncation: Truncation
    """The law of `keep`, drawn per sample."""
    batch: int = 128
    """Examples per step, over all ranks."""
    rate: float = 1e-3

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.rate)


@dataclass(frozen=True, kw_only=True)
class PriorStage:
    """The prior: AdamW, a linear warm-up, then a rate that falls or stays."""

    epochs: int
    batch: int = 128
    """Examples per step, over all ranks."""
    rate: float = 2e-3
    """Rate at the end of the warm-up."""
    warmup: int = 3000
    """Steps of warm-up from 1e-7; at most a quarter of all steps, so that short schedules reach their rate."""
    schedule: Literal["sqrt", "constant", "cosine"] = "sqrt"
    """After the warm-up: falling with the square root of the step, constant, or falling to zero as half a cosine does."""
    weight_decay: float = 0.1
    """Decoupled; without it this is Adam."""
    average: float = 0.0
    """Memory, per step, of the running mean of the weights that is kept; 0 keeps the weights themselves."""
    views: int = 1
    """Examples are encoded so often: recordings all but the first time at other places and speeds, pictures as they are, then
    mirrored, then moved by a pixel each way, as they are and mirrored. An epoch sees all of them."""
    speed: float = 0.0
    """How much faster or slower they are then, at most, as a share."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.rate)
        check_sounds(0.0, self.speed)
        if self.views < 1:
            raise UserError(f"prior stage: views must be at least 1, not {self.views}")
        if self.warmup < 1 or self.weight_decay < 0:
            raise UserError("prior stage: warmup must be at least 1 and weight_decay at least 0")
        check_average(self.average)


def check_schedule(epochs: int, batch: int, rate: float) -> None:
    if epochs < 1 or batch < 1 or not rate > 0:
        raise UserError(f"a stage needs epochs, batch and rate above zero, not {epochs}, {batch}, {rate}")


def check_sounds(spectral: float, speed: float) -> None:
    if spectral < 0 or not 0 <= speed <= 0.5:
        raise UserError(f"a stage needs spectral of at least 0 and speed between 0 and 0.5, not {spectral} and {speed}")


def check_average(average: float) -> None:
    if not 0 <= average < 1:
        raise UserError(f"a stage needs average of at least 0 and below 1, not {average}")


PRETRAIN = AutoencoderStage(epochs=200, truncation=Full())  # keep = length: an ordinary VQ-VAE
ORDERED = AutoencoderStage(epochs=200, truncation=Uniform())  # keep ~ U{1..length}: codes fall into order
PRIOR = PriorStage(epochs=50)
PIXELCNN = PriorStage(epochs=50, rate=3e-4, warmup=1, schedule="constant", weight_decay=0.0)  # plain Adam


def warmed_rate(stage: PriorStage, step: int, steps: int) -> float:
    """Linear from 1e-7 to `rate` over the warm-up, then rate · sqrt(warmup / step), `rate` for good, or a falling cosine."""
    warmup = max(1, min(stage.warmup, steps // 4))
    if step < warmup:
        return 1e-7 + (stage.rate - 1e-7) * step / warmup
    if stage.schedule == "sqrt":
        return float(stage.rate * (warmup / step) ** 0.5)
    return falling_rate(stage.rate, stage.schedule, step - warmup, steps - warmup)


def falling_rate(rate: float, schedule: Schedule, step: int, steps: int) -> float:
    """`rate` for good, or rate (1 + cos π step / steps) / 2.

    >>> falling_rate(1e-3, "constant", 5, 10), falling_rate(1e-3, "cosine", 0, 10), falling_rate(1e-3, "cosine", 5, 10)
    (0.001, 0.001, 0.0005)
    """
    return rate if schedule == "constant" else rate * (1 + math.cos(math.pi * step / steps)) / 2
