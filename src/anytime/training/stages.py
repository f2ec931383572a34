"""The three stages as values: pretrain (full codes) -> ordered (random truncation) -> prior (on the encoded data)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anytime.autoencoders.losses import Reduction
from anytime.autoencoders.truncation import Full, Truncation, Uniform
from anytime.errors import UserError

Padding = Literal["masked", "silence"]
"""What the end of a crop is that its recording does not reach: nothing, left out of the loss; or silence, to be learned."""


@dataclass(frozen=True, kw_only=True)
class AutoencoderStage:
    """One stage of the autoencoder: Adam at a constant rate, made anew for each stage."""

    epochs: int
    truncation: Truncation
    """The law of `keep`, drawn per sample."""
    reduction: Reduction = "mean"
    """How the terms of the loss weigh against each other."""
    batch: int = 128
    """Examples per step, over all ranks."""
    rate: float = 1e-3
    padding: Padding = "masked"
    """Of sounds shorter than a crop: masked from the loss, or learned as silence. Pictures have none."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.rate)


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
    schedule: Literal["sqrt", "constant"] = "sqrt"
    """After the warm-up: falling with the square root of the step, or constant."""
    weight_decay: float = 0.1
    """Decoupled; without it this is Adam."""

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.rate)
        if self.warmup < 1 or self.weight_decay < 0:
            raise UserError("prior stage: warmup must be at least 1 and weight_decay at least 0")


def check_schedule(epochs: int, batch: int, rate: float) -> None:
    if epochs < 1 or batch < 1 or not rate > 0:
        raise UserError(f"a stage needs epochs, batch and rate above zero, not {epochs}, {batch}, {rate}")


PRETRAIN = AutoencoderStage(epochs=200, truncation=Full())  # keep = length: an ordinary VQ-VAE
ORDERED = AutoencoderStage(epochs=200, truncation=Uniform())  # keep ~ U{1..length}: codes fall into order
PRIOR = PriorStage(epochs=50)
PIXELCNN = PriorStage(epochs=50, rate=3e-4, warmup=1, schedule="constant", weight_decay=0.0)  # plain Adam


def warmed_rate(stage: PriorStage, step: int, steps: int) -> float:
    """Linear from 1e-7 to `rate` over the warm-up, then rate · sqrt(warmup / step), or `rate` for good."""
    warmup = max(1, min(stage.warmup, steps // 4))
    if step < warmup:
        return 1e-7 + (stage.rate - 1e-7) * step / warmup
    return stage.rate if stage.schedule == "constant" else float(stage.rate * (warmup / step) ** 0.5)
