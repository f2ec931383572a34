"""Density models of dequantised pixels, in raster order or rotated to principal components (Appendix D).

A byte plus a uniform number from [0, 1) lies in [0, 256). −log₂ of a density of such values bounds the bits per byte. A
rotation keeps volume, so that bits per dimension compare between both spaces without a correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.baselines import pca
from anytime.baselines.base import BaselineModel, load_baseline
from anytime.baselines.continuous_transformer import ContinuousConfig, ContinuousTransformer
from anytime.core.errors import UserError

BATCH = 5000

Space = Literal["pixels", "pca"]


@dataclass(frozen=True, kw_only=True)
class DensityConfig:
    """The data, the space and the network."""

    name: str
    """The dataset."""
    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    space: Space
    """pixels: in raster order, channels last; pca: all principal components, largest variance first."""
    prior: ContinuousConfig

    def __post_init__(self) -> None:
        if self.prior.length != (size := math.prod(self.shape)):
            raise UserError(f"`prior` models {self.prior.length} numbers, data of shape {self.shape} has {size}")


def dequantized(
    x: UInt8[Tensor, "batch channel height width"], uniforms: Float[Tensor, "batch size"]
) -> Float[Tensor, "batch size"]:
    """Return byte + u in [0, 256), pixel by pixel with the channels together."""
    return x.permute(0, 2, 3, 1).flatten(1).float() + uniforms


class DensityModel(BaselineModel):
    """A Transformer over real values, and the space of the values."""

    kind = "density"
    config: DensityConfig
    centre: Tensor  # [size]
    turn: Tensor  # [size, size], orthogonal; empty for pixels

    def __init__(self, config: DensityConfig) -> None:
        super().__init__()
        self.config = config
        size = config.prior.length
        self.prior = ContinuousTransformer(config.prior)
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("turn", torch.eye(size) if config.space == "pca" else torch.zeros(0, 0))

    @torch.no_grad()
    def fit_space(self, train: UInt8[Tensor, "n channel height width"]) -> None:
        """Fit the components, and the mean and standard deviation of every value, to the training examples."""
        flat = train.permute(0, 2, 3, 1).flatten(1)
        count = len(flat)
        total = sum((part.double().sum(0) for part in flat.split(BATCH)), torch.zeros(1).to(flat.device))
        self.centre.copy_(total / count + 0.5)
        if self.config.space == "pca":
            self.turn.copy_(pca.fit(flat, flat.shape[1]).components)
        squares = torch.zeros_like(self.centre, dtype=torch.float64)
        for part in flat.split(BATCH):
            squares += self._rotate(part.to(self.centre.device).float() + 0.5 - self.centre).double().square().sum(0)
        # Uniform noise adds 1/12 to the variance of every value, rotated or not.
        self.prior.standardise(torch.zeros_like(self.centre), (squares / count + 1 / 12).sqrt().float())

    def _rotate(self, centred: Float[Tensor, "batch size"]) -> Float[Tensor, "batch size"]:
        return centred @ self.turn if self.config.space == "pca" else centred

    def to_values(self, y: Float[Tensor, "batch size"]) -> Float[Tensor, "batch size"]:
        """Map dequantised pixels to the modelled sequence; both spaces keep the volume."""
        return self._rotate(y - self.centre)

    def to_pixels(self, values: Float[Tensor, "batch size"]) -> UInt8[Tensor, "batch channel height width"]:
        """Map values back to bytes, the inverse of `to_values`."""
        y = self.centre + (values @ self.turn.T if self.config.space == "pca" else values)
        channel, height, width = self.config.shape
        pixels: Tensor = y.floor().clamp(0, 255).to(torch.uint8).unflatten(1, (height, width, channel)).permute(0, 3, 1, 2)
        return pixels

    def bits_per_dim(
        self, x: UInt8[Tensor, "batch channel height width"], uniforms: Float[Tensor, "batch size"]
    ) -> Float[Tensor, " batch"]:
        """Return bits per dimension of each example, with the given dequantisation noise."""
        return self.prior.bits_per_dim(self.to_values(dequantized(x, uniforms)))

    def sample(self, n: int, seed: int = 0) -> UInt8[Tensor, "n channel height width"]:
        """Sample images value by value."""
        return self.to_pixels(self.prior.sample(n, seed))


def load_density(directory: str | Path, device: str | torch.device = "cpu") -> DensityModel:
    """Load a saved density model or that of a finished run."""
    return load_baseline(directory, DensityModel, DensityConfig, device)
