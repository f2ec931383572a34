"""Training a density model of dequantised pixels or of their principal components (Appendix D): one stage, the prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from anytime.baselines.base import BaselineRunSpec
from anytime.baselines.continuous_transformer import ContinuousTransformer
from anytime.baselines.density import DensityConfig, DensityModel, dequantized, load_density
from anytime.core import distributed, random
from anytime.data.image_grid import labelled_rows, write_png
from anytime.data.loader import Loader, to_float
from anytime.training.config import BaseRunConfig, Shape
from anytime.training.stages import PriorStage
from anytime.training.tasks.prior import adamw, prior_lr
from anytime.training.tasks.task import Metrics, Task, TaskDefaults, global_rows, validation_batches


@dataclass(frozen=True, kw_only=True)
class DensityRunConfig(BaseRunConfig):
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


class DensityTask(TaskDefaults):
    """The stage "prior" of a density model. Each step dequantises its examples anew, by seed, step and row."""

    name = "prior"
    loss_names = ("loss",)

    def __init__(self, stage: PriorStage, model: DensityModel, train: Tensor, validation: Tensor, seed: int) -> None:
        self.stage, self.module, self.seed = stage, model, seed
        self.objective = DensityObjective(model.prior)
        self.loader = Loader(train, stage.batch, seed, distributed.rank(), distributed.world_size())
        self.validation, self.device = validation, model.centre.device
        self.epochs, self.steps_per_epoch = stage.epochs, self.loader.steps_per_epoch

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

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Return the held-out bits per dimension, with fixed noise."""
        total = torch.zeros(1, dtype=torch.float64, device=self.device)
        for rows in validation_batches(len(self.validation)):
            x = self.validation[rows].to(self.device)
            row_ids = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=self.device)
            with torch.autocast(self.device.type, enabled=False):  # the rotation to principal components must not be rounded
                values = self._values(x, "validation", 0, row_ids)
            total += self.objective(values).double() * len(x)
        return {"loss": float(distributed.all_reduce_sum(total)) / len(self.validation)}


class DensityRunSpec(BaselineRunSpec[DensityModel]):
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
