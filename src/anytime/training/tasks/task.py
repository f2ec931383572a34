"""The Task protocol: what the training loop knows of a stage, and helpers that several tasks share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.truncation import Truncation, sample_keep
from anytime.core import distributed, random

VALIDATION_BATCH = 500

Metrics = dict[str, float]
"""Named values for the log; the first one selects the best epoch."""


@runtime_checkable
class Task(Protocol):
    """What one stage trains: its batches, loss, optimizer and validation."""

    @property
    def name(self) -> str:
        """Name of the stage."""

    @property
    def module(self) -> nn.Module:
        """The module whose best weights are kept."""

    @property
    def objective(self) -> nn.Module:
        """The module called in training; it holds `module`."""

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the losses, in order."""

    @property
    def auxiliary(self) -> nn.Module | None:
        """A module trained beside `module` that only this stage needs; kept in checkpoints alone."""

    @property
    def keeps_last(self) -> bool:
        """Whether to keep the last epoch's weights because no validation loss says which are best."""

    @property
    def epochs(self) -> int:
        """Epochs of the stage."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch."""

    def optimizer(self) -> torch.optim.Optimizer:
        """Return a new optimizer."""

    def lr(self, step: int) -> float:
        """Return the learning rate of a step."""

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return this rank's part of the step's batch and what else the losses need; shapes are the same at every step."""

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        """Return the mean losses; the first is minimised."""

    def after_step(self, step: int) -> None:
        """Update what the optimizer does not: an EMA, the codebook."""

    def validate(self) -> Metrics:
        """Return the metrics on the validation set."""


class TaskDefaults:
    """Defaults of a task: one module, the best epoch kept, losses straight from the objective."""

    auxiliary: nn.Module | None = None
    keeps_last = False

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        """Return the objective's losses."""
        losses: Tensor = objective(*inputs)
        return losses

    def after_step(self, step: int) -> None:
        """Do nothing."""


class KeepSampler:
    """`keep` of every step, a function of (seed, epoch, step, row)."""

    def __init__(self, distribution: Truncation, length: int, steps_per_epoch: int, seed: int, device: torch.device) -> None:
        self.distribution, self.length, self.steps_per_epoch = distribution, length, steps_per_epoch
        self.seed, self.device = seed, device
        self._epoch: tuple[int, Tensor] | None = None  # its number and `keep`, [steps, rows]

    def at(self, step: int, rows: int) -> Int[Tensor, " rows"]:
        """Return `keep` of this rank's rows; it does not depend on the number of ranks."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:  # a whole epoch: one hash per step would cost more than the step
            steps = torch.arange(self.steps_per_epoch, dtype=torch.int32, device=self.device)[:, None]
            uniforms = random.uniform(self.seed, epoch, steps, global_rows(rows, self.device))
            self._epoch = epoch, sample_keep(self.distribution, self.length, uniforms)
        return self._epoch[1][within]


def global_rows(rows: int, device: torch.device) -> Int[Tensor, " rows"]:
    """Return the numbers of this rank's rows in the global batch."""
    return torch.arange(rows, dtype=torch.int32, device=device) + rows * distributed.rank()


def optimizer_options(parameter: Tensor, lr: float) -> dict[str, Any]:
    """Return options of an optimizer: on a GPU a fused kernel whose learning rate is a tensor, as a graph needs."""
    if not parameter.is_cuda:
        return {"lr": lr}
    return {"lr": torch.tensor(lr, device=parameter.device), "fused": True, "capturable": True}


def validation_keeps(distribution: Truncation, length: int, count: int) -> Int[Tensor, " count"]:
    """Return a fixed `keep` for each validation example, spread over the quantiles of the distribution."""
    # Multiples of the golden ratio fill (0, 1) evenly and do not follow the order of the examples.
    golden = (torch.arange(count, dtype=torch.float64) * 0.6180339887498949) % 1
    return sample_keep(distribution, length, golden)


def validation_batches(count: int) -> Iterator[slice]:
    """Yield this rank's batches of the validation set."""
    starts = range(0, count, VALIDATION_BATCH)
    for start in starts[distributed.rank() :: distributed.world_size()]:
        yield slice(start, min(start + VALIDATION_BATCH, count))
