"""The base class of tasks: what the training loop knows of a stage, and helpers that several tasks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from anytime.autoencoders.truncation import Truncation, sample_keep
from anytime.core import distributed, random
from anytime.data.image_shards import ImageShards
from anytime.data.loader import Loader
from anytime.data.recordings import Recordings

VALIDATION_BATCH = 500

Metrics = dict[str, float]
"""Named values for the log; the first one selects the best epoch."""


class Task:
    """What one stage trains: its batches, loss, optimizer and validation. The loop knows nothing else of a stage."""

    name: str
    module: nn.Module  # its best weights are kept
    objective: nn.Module  # called in training; holds `module`
    loss_names: tuple[str, ...]
    auxiliary: nn.Module | None = None  # trained beside `module`, needed by this stage alone: kept in checkpoints only
    keeps_last: bool = False  # keep the last weights, because no validation loss says which are best
    epochs: int
    steps_per_epoch: int

    def __init__(
        self,
        epochs: int,
        batch: int,
        examples: Shaped[Tensor, "n ..."] | Recordings | ImageShards,
        seed: int,
        device: torch.device,
        speed_perturb: float = 0.0,
    ) -> None:
        self.epochs, self.seed, self.device = epochs, seed, device
        self.loader = Loader(examples, batch, seed, distributed.rank(), distributed.world_size(), speed_perturb)
        self.steps_per_epoch = self.loader.steps_per_epoch

    def optimizer(self) -> torch.optim.Optimizer:
        """Return a new optimizer; by default Adam over the weights that have gradients."""
        trained = [p for p in self.module.parameters() if p.requires_grad]
        return torch.optim.Adam(trained, **optimizer_options(trained[0], self.lr(0)))

    def lr(self, step: int) -> float:
        """Return the learning rate of a step."""
        raise NotImplementedError

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return this rank's part of the step's batch and what else the losses need; shapes are the same at every step."""
        raise NotImplementedError

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        """Return the mean losses; the first is minimised."""
        losses: Tensor = objective(*inputs)
        return losses

    def after_step(self, step: int) -> None:
        """Update what the optimizer does not: an EMA, the codebook."""

    def validate(self) -> Metrics:
        """Return the metrics on the validation set."""
        raise NotImplementedError

    @torch.no_grad()
    def mean_losses(self, count: int, losses: Callable[[slice], Float[Tensor, " losses"]]) -> Metrics:
        """Return the means over `count` validation examples, on all ranks, of the losses of a batch."""
        sums = torch.zeros(len(self.loss_names), dtype=torch.float64, device=self.device)
        for rows in validation_batches(count):
            sums += losses(rows).double() * (rows.stop - rows.start)
        return dict(zip(self.loss_names, (distributed.all_reduce_sum(sums) / count).tolist(), strict=True))


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
