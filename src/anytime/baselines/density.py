"""Bytes as real numbers, in raster order or turned into principal components (Appendix D).

A byte plus a uniform number from [0, 1) lies in [0, 256); −log₂ of a density of such numbers bounds the bits that the bytes
cost. An orthogonal turn keeps volume, so that bits per dimension in both spaces compare without a correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from anytime.baselines import pca
from anytime.baselines.continuous_transformer import ContinuousConfig, ContinuousTransformer
from anytime.core import storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.errors import UserError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
DENSITY_KIND = {"kind": "density"}  # tells its folder from that of a model with codes
BATCH = 5000

Space = Literal["pixels", "pca"]


@dataclass(frozen=True, kw_only=True)
class DensityConfig:
    name: str
    """The data set it models."""
    shape: tuple[int, int, int]
    """Channels, height and width of the data."""
    space: Space
    """pixels: channels last, in raster order; pca: all principal components, the largest variance first."""
    prior: ContinuousConfig

    def __post_init__(self) -> None:
        if self.prior.length != (size := math.prod(self.shape)):
            raise UserError(f"the prior models {self.prior.length} numbers, data of shape {self.shape} has {size}")


def dequantized(
    x: UInt8[Tensor, "batch channel height width"], uniforms: Float[Tensor, "batch size"]
) -> Float[Tensor, "batch size"]:
    """y = byte + u in [0, 256), pixel after pixel with its channels together."""
    return x.permute(0, 2, 3, 1).flatten(1).float() + uniforms


class DensityModel(nn.Module):
    """A continuous Transformer and the space that it works in."""

    centre: Tensor  # [size]
    turn: Tensor  # [size, size], orthogonal; empty where nothing is turned

    def __init__(self, config: DensityConfig) -> None:
        super().__init__()
        self.config = config
        size = config.prior.length
        self.prior = ContinuousTransformer(config.prior)
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("turn", torch.eye(size) if config.space == "pca" else torch.zeros(0, 0))

    @torch.no_grad()
    def fit_space(self, train: UInt8[Tensor, "n channel height width"]) -> None:
        """Find the components, and where each number lies and how wide it spreads, from the training examples."""
        flat = train.permute(0, 2, 3, 1).flatten(1)
        count = len(flat)
        self.centre.copy_(
            sum((part.double().sum(0) for part in flat.split(BATCH)), torch.zeros(1).to(flat.device)) / count + 0.5
        )
        if self.config.space == "pca":
            self.turn.copy_(pca.fit(flat, flat.shape[1]).components)
        squares = torch.zeros_like(self.centre, dtype=torch.float64)
        for part in flat.split(BATCH):
            squares += self._rotate(part.to(self.centre.device).float() + 0.5 - self.centre).double().square().sum(0)
        # Uniform noise adds 1/12 to the variance of every number, turned or not.
        self.prior.standardise(torch.zeros_like(self.centre), (squares / count + 1 / 12).sqrt().float())

    def _rotate(self, centred: Float[Tensor, "batch size"]) -> Float[Tensor, "batch size"]:
        return centred @ self.turn if self.config.space == "pca" else centred

    def to_values(self, y: Float[Tensor, "batch size"]) -> Float[Tensor, "batch size"]:
        """Dequantised pixels as the sequence that is modelled; of volume one, whichever the space."""
        return self._rotate(y - self.centre)

    def to_pixels(self, values: Float[Tensor, "batch size"]) -> UInt8[Tensor, "batch channel height width"]:
        """The inverse of `to_values`, down to the byte."""
        y = self.centre + (values @ self.turn.T if self.config.space == "pca" else values)
        channel, height, width = self.config.shape
        pixels: Tensor = y.floor().clamp(0, 255).to(torch.uint8).unflatten(1, (height, width, channel)).permute(0, 3, 1, 2)
        return pixels

    def bits_per_dim(
        self, x: UInt8[Tensor, "batch channel height width"], uniforms: Float[Tensor, "batch size"]
    ) -> Float[Tensor, " batch"]:
        """Of each example, with the given dequantisation."""
        return self.prior.bits_per_dim(self.to_values(dequantized(x, uniforms)))

    def sample(self, n: int, seed: int = 0) -> UInt8[Tensor, "n channel height width"]:
        """Pictures, drawn number by number."""
        return self.to_pixels(self.prior.sample(n, seed))

    def save(self, folder: str | Path) -> Path:
        """Write `config.json` and `model.safetensors` into a folder."""
        folder = Path(folder)
        storage.write_tensors(folder / WEIGHTS, self.state_dict())
        storage.write_json(folder / CONFIG, {**DENSITY_KIND, **to_dict(self.config)})
        return folder


def load_density(folder: str | Path, device: str | torch.device = "cpu") -> DensityModel:
    """A saved density model or a finished run of one."""
    folder = Path(folder)
    if (folder / "model" / CONFIG).is_file():
        folder = folder / "model"
    data = read_json(folder / CONFIG)
    if data.pop("kind", None) != DENSITY_KIND["kind"]:
        raise UserError(f"{folder} holds no density model but one of another kind; name the folder of a density run")
    model = DensityModel(from_dict(DensityConfig, data, str(folder / CONFIG)))
    try:
        model.load_state_dict(storage.read_tensors(folder / WEIGHTS)[0])
    except RuntimeError:
        raise UserError(f"{folder / WEIGHTS} does not fit its {CONFIG}; restore both from where they came from") from None
    return model.to(device).eval()
