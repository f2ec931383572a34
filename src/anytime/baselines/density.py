"""Density models of dequantised pixels, in raster order or rotated to principal components (Appendix D).

A byte plus a uniform number from [0, 1) lies in [0, 256). −log₂ of a density of such values bounds the bits per byte. A
rotation keeps volume, so that bits per dimension compare between both spaces without a correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from anytime.baselines import pca
from anytime.baselines.base import BaselineModel, load_baseline
from anytime.baselines.continuous_transformer import ContinuousConfig, ContinuousTransformer
from anytime.core import random
from anytime.core.errors import UserError
from anytime.data.image_grid import labelled_rows, write_png
from anytime.data.loader import to_float
from anytime.training.config import BaseRunConfig, Shape
from anytime.training.run_spec import RunSpec
from anytime.training.stages import PriorStage
from anytime.training.tasks.prior import adamw, prior_lr
from anytime.training.tasks.task import Metrics, Task, global_rows

BATCH = 5000
SEQUENCES = 100  # per batch of the likelihood; each is as long as an image has values
COMPONENT_EXAMPLES = 500  # to fit the head's components to: hundreds of thousands of values

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


def row_uniforms(key: int, x: UInt8[Tensor, "n channel height width"], first: int = 0) -> Float[Tensor, "n size"]:
    """Return a uniform number for each value of x, a function of the key, the number of the row and the value."""
    rows, element = (torch.arange(n, dtype=torch.int32, device=x.device) for n in (len(x), x[0].numel()))
    return random.uniform(key, first + rows[:, None], element)


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
        if config.space == "pixels":
            channels, height, width = config.shape
            grid = torch.cartesian_prod(*(torch.arange(side) for side in (height, width, channels)))
            self.prior.init_positions(grid if channels > 1 else grid[:, :2])

    @torch.no_grad()
    def fit_space(self, train: UInt8[Tensor, "n channel height width"]) -> None:
        """Fit the rotation, the centre, the spread of the values and the head's components to the training examples.

        Every principal component has its own spread. All pixels share one centre and one spread: with their own, the same
        background would be another number at every position, which the head had to place within a level.
        """
        flat = train.permute(0, 2, 3, 1).flatten(1)
        total = sum((part.double().sum(0) for part in flat.split(BATCH)), torch.zeros(1).to(flat.device))
        centre = total / len(flat) + 0.5
        self.centre.copy_(centre if self.config.space == "pca" else centre.mean())
        if self.config.space == "pca":
            self.turn.copy_(pca.fit(flat, flat.shape[1]).components)
        squares = torch.zeros_like(self.centre, dtype=torch.float64)
        for part in flat.split(BATCH):
            squares += self._rotate(part.to(self.centre.device).float() + 0.5 - self.centre).double().square().sum(0)
        variance = squares / len(flat) + 1 / 12  # of uniform noise, rotated or not
        variance = variance if self.config.space == "pca" else variance.mean().expand_as(variance)
        self.prior.standardise(torch.zeros_like(self.centre), variance.sqrt().float())
        few = train[:COMPONENT_EXAMPLES].to(self.centre.device)
        self.prior.fit_components(self.to_values(dequantized(few, row_uniforms(random.derive(0, "components"), few))))

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


@torch.no_grad()
def held_out_bits_per_dim(model: DensityModel, x: UInt8[Tensor, "n channel height width"], seed: int = 0) -> float:
    """Return the mean bits per dimension of x; each example is dequantised by its number and the seed (Appendix D)."""
    total, key = 0.0, random.derive(seed, "held-out")
    for first, part in zip(range(0, len(x), SEQUENCES), x.to(model.centre.device).split(SEQUENCES), strict=True):
        total += float(model.bits_per_dim(part, row_uniforms(key, part, first)).double().sum())
    return total / len(x)


@dataclass(frozen=True, kw_only=True)
class DensityRunConfig(BaseRunConfig[DensityModel]):
    """A run that trains a density model; its `config.json`."""

    recipe: Literal["density"] = "density"
    model: DensityConfig
    prior: PriorStage
    sample_grids: int = 1

    @property
    def shape(self) -> Shape:
        """Shape of one example."""
        return self.model.shape


class DensityObjective(nn.Module):
    """Mean bits per dimension, in units of one of 256 levels."""

    def __init__(self, prior: ContinuousTransformer) -> None:
        super().__init__()
        self.prior = prior

    def forward(self, values: Float[Tensor, "batch length"]) -> Float[Tensor, " one"]:
        """Return the loss as a tensor of one element."""
        return self.prior.bits_per_dim(values).mean()[None]


class DensityTask(Task):
    """The stage "prior" of a density model. Each step dequantises its examples anew, by seed, step and row."""

    name = "prior"
    module: DensityModel
    loss_names = ("loss",)

    def __init__(self, stage: PriorStage, model: DensityModel, train: Tensor, validation: Tensor, seed: int) -> None:
        super().__init__(stage.epochs, stage.batch, train, seed, model.centre.device)
        self.stage, self.module, self.validation = stage, model, validation
        self.objective = DensityObjective(model.prior)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return adamw(self.module, self.stage, self.lr(0))

    def lr(self, step: int) -> float:
        """Return the learning rate of a step."""
        return prior_lr(self.stage, step, self.epochs * self.steps_per_epoch)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return this rank's dequantised values."""
        x = self.loader.batch_at(step).to(self.device)
        return (self._values(x, "dequantisation", step, global_rows(len(x), self.device)),)

    def _values(self, x: Tensor, purpose: str, step: int, rows: Int[Tensor, " batch"]) -> Float[Tensor, "batch length"]:
        element = torch.arange(x[0].numel(), dtype=torch.int32, device=self.device)
        uniforms = random.uniform(random.derive(self.seed, purpose), step, rows[:, None], element)
        return self.module.to_values(dequantized(x, uniforms))

    def validate(self) -> Metrics:
        """Return the held-out bits per dimension, with fixed noise."""

        def losses(rows: slice) -> Tensor:
            row_ids = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=self.device)
            with torch.autocast(self.device.type, enabled=False):  # the rotation to principal components must not be rounded
                values = self._values(self.validation[rows].to(self.device), "validation", 0, row_ids)
            out: Tensor = self.objective(values)
            return out

        return self.mean_losses(len(self.validation), losses)


class DensityRunSpec(RunSpec[DensityModel], config=DensityRunConfig):
    """The one stage of a density model."""

    stages: tuple[str, ...] = ("prior",)

    def __init__(
        self, config: DensityRunConfig, train: UInt8[Tensor, "n ..."], validation: UInt8[Tensor, "m ..."], device: torch.device
    ) -> None:
        self.config, self.train, self.validation, self.device = config, train, validation, device
        self.model = DensityModel(config.model).to(device)
        self.model.fit_space(train)

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        """Return the task of the stage."""
        return DensityTask(self.config.prior, self.model, self.train, self.validation, seed)

    def save_grid(self, path: Path, stage: str) -> None:
        """Write sixteen examples and sixteen samples."""
        self.model.eval()
        samples = to_float(self.model.sample(16, seed=0)).cpu()
        write_png(path, labelled_rows([("data", to_float(self.validation[:16]).cpu()), ("samples", samples)]))

    def load(self, directory: Path) -> DensityModel:
        """Load the finished model."""
        return load_density(directory, self.device)
