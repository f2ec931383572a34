"""Training a VAE, ordered or standard (Appendix C.1): pretrain (all groups), then ordered (random truncation); no prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from anytime.autoencoders.truncation import Truncation
from anytime.baselines.base import BaselineRunSpec
from anytime.baselines.vae import VAE, VAEConfig, load_vae
from anytime.core import distributed, random
from anytime.data.image_grid import labelled_rows, write_png
from anytime.data.loader import Loader, to_float
from anytime.sampling.budget import code_count
from anytime.training.config import BaseRunConfig, Shape
from anytime.training.sample_grids import GRID_FRACTIONS
from anytime.training.stages import check_schedule
from anytime.training.tasks.task import (
    KeepSampler,
    Metrics,
    Task,
    TaskDefaults,
    global_rows,
    optimizer_options,
    validation_batches,
    validation_keeps,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class VAEStage:
    """One stage of a VAE, on the evidence bound."""

    epochs: int
    truncation: Truncation
    """Distribution of `keep`, sampled per example."""
    batch: int = 128
    """Examples per step, over all ranks."""
    lr: float = 1e-3

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch, self.lr)


@dataclass(frozen=True, kw_only=True)
class VAERunConfig(BaseRunConfig):
    """A run that trains a VAE; its `config.json`."""

    recipe: Literal["vae"] = "vae"
    model: VAEConfig
    pretrain: VAEStage
    ordered: VAEStage

    @property
    def shape(self) -> Shape:
        """Shape of one example."""
        return self.model.shape


class VAEObjective(nn.Module):
    """The evidence bound at a sampled `keep`, averaged over the batch."""

    def __init__(self, model: VAE) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        x: UInt8[Tensor, "batch channel height width"],
        keep: Int[Tensor, " batch"],
        noise: Float[Tensor, "batch length dim"],
    ) -> Float[Tensor, " losses"]:
        """Return the mean losses of a batch."""
        terms = self.model(to_float(x), keep, noise)
        return torch.stack([t.mean() for t in (terms.total, terms.reconstruction, terms.kl, terms.error)])


class VAETask(TaskDefaults):
    """Both stages of a VAE, which differ in the distribution of `keep`. Noise is a function of seed, step and row."""

    loss_names = ("loss", "reconstruction", "kl", "error")

    def __init__(self, name: str, stage: VAEStage, model: VAE, train: Tensor, validation: Tensor, seed: int) -> None:
        self.name, self.stage, self.module, self.seed = name, stage, model, seed
        self.objective = VAEObjective(model)
        self.loader = Loader(train, stage.batch, seed, distributed.rank(), distributed.world_size())
        self.validation, self.device = validation, model.device
        self.epochs, self.steps_per_epoch = stage.epochs, self.loader.steps_per_epoch
        self.keeps = KeepSampler(stage.truncation, model.length, self.steps_per_epoch, seed, self.device)

    def optimizer(self) -> torch.optim.Optimizer:
        """Return Adam."""
        trained = list(self.module.parameters())
        return torch.optim.Adam(trained, **optimizer_options(trained[0], self.stage.lr))

    def lr(self, step: int) -> float:
        """Return the constant learning rate."""
        return self.stage.lr

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return this rank's examples, their `keep` and their noise."""
        x = self.loader.batch_at(step).to(self.device)
        return x, self.keeps.at(step, len(x)), self._noise("noise", step, global_rows(len(x), self.device))

    def _noise(self, purpose: str, step: int, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows length dim"]:
        length, dim = self.module.length, self.module.config.dim
        element = torch.arange(length * dim, dtype=torch.int32, device=self.device)
        noise = random.normal(random.derive(self.seed, purpose), step, rows[:, None], element)
        return noise.reshape(len(rows), length, dim)

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Return the losses at fixed `keep` and fixed noise."""
        keeps = validation_keeps(self.stage.truncation, self.module.length, len(self.validation)).to(self.device)
        sums = torch.zeros(len(self.loss_names), dtype=torch.float64, device=self.device)
        for rows in validation_batches(len(self.validation)):
            x = self.validation[rows].to(self.device)
            row_ids = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=self.device)
            sums += self.objective(x, keeps[rows], self._noise("validation", 0, row_ids)).double() * len(x)
        return dict(zip(self.loss_names, (distributed.all_reduce_sum(sums) / len(self.validation)).tolist(), strict=True))


class VAERunSpec(BaselineRunSpec[VAE]):
    """The stages of a VAE."""

    stages: tuple[str, ...] = ("pretrain", "ordered")

    def __init__(
        self, config: VAERunConfig, train: UInt8[Tensor, "n ..."], validation: UInt8[Tensor, "m ..."], device: torch.device
    ) -> None:
        self.config, self.train, self.validation, self.device = config, train, validation, device
        self.model = VAE(config.model).to(device)

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        """Return the task of a stage."""
        stage = (self.config.pretrain, self.config.ordered)[index]
        return VAETask(self.stages[index], stage, self.model, self.train, self.validation, seed)

    @torch.no_grad()
    def save_grid(self, path: Path, stage: str) -> None:
        """Write reconstructions from the mean latents, by number of groups."""
        self.model.eval()
        x = to_float(self.validation[:16]).to(self.device)
        latents, length = self.model.latents(x), self.model.length
        counts = [code_count(length, fraction=f) for f in GRID_FRACTIONS]
        rows = [(f"{k} of {length} groups", self.model.decode(latents[:, :k]).cpu()) for k in counts]
        write_png(path, labelled_rows([("data", x.cpu()), *rows]))

    def load(self, directory: Path) -> VAE:
        """Load the finished VAE."""
        return load_vae(directory, self.device)
