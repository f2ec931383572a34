"""The one training loop: every stage of every model goes through `run_stage`.

A step is a pure function of (seed, stage, step) and the weights: batches, truncation and dropout come from counters, not
from a generator. So a run that was killed and resumed computes what an uninterrupted one would have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anytime.core import distributed, random
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, Pause, Paused
from anytime.training.checkpoint import optimizer_tensors, restore_optimizer
from anytime.training.step import Compute, set_lr
from anytime.training.tasks.task import Metrics, Task

PROGRESS_SECONDS = 0.25  # reading the losses waits for the device; rare enough to cost nothing


@dataclass
class StageState:
    """Progress of a stage, updated by the loop."""

    step: int = 0
    best_loss: float | None = None
    best: dict[str, Tensor] = field(default_factory=dict)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    auxiliary: dict[str, Tensor] = field(default_factory=dict)  # weights of `Task.auxiliary`
    running_losses: Tensor = field(default_factory=lambda: torch.zeros(0))  # sums of the epoch so far; empty at its start


@dataclass(frozen=True, slots=True)
class EpochMetrics:
    """Metrics at the end of an epoch."""

    epoch: int
    step: int
    train: Metrics
    validation: Metrics
    seconds: float


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the loop: progress, logging, checkpoints and pausing."""

    progress: Callable[[int, Metrics], None]
    epoch: Callable[[EpochMetrics], None]
    checkpoint_due: Callable[[], bool]
    checkpoint: Callable[[StageState], None]
    last_epoch: Callable[[], None] = lambda: None  # called while `task.module` still has the last weights
    pause: Pause = NEVER  # for one rank alone: several would have to stop at the same step


def run_stage(task: Task, state: StageState, compute: Compute, hooks: Hooks, seed: int) -> None:
    """Train `task` from `state` to its end and leave the best weights, or the last, in `task.module`.

    Raise `Paused` after writing a checkpoint when a pause is due.
    """
    optimizer = task.optimizer()
    if state.optimizer:
        restore_optimizer(optimizer, state.optimizer)
    if task.auxiliary is not None and state.auxiliary:
        task.auxiliary.load_state_dict(state.auxiliary)
    train_step = compute.step(task, optimizer)
    running_losses = torch.zeros(len(task.loss_names), dtype=torch.float64, device=compute.device)
    if len(state.running_losses):
        running_losses += state.running_losses.to(compute.device)
    guard = DivergenceGuard(task.name, compute.device)
    last_progress = epoch_started = time.monotonic()

    for step in range(state.step, task.epochs * task.steps_per_epoch):
        # Only dropout uses torch's generator; each rank and step has its own stream.
        torch.manual_seed(random.derive(seed, step, distributed.rank()))
        set_lr(optimizer, task.lr(step))
        task.objective.train()
        losses = train_step(task.inputs(step))
        task.after_step(step)
        running_losses += losses
        guard.observe(losses[0], step)
        state.step = step + 1

        done_in_epoch = state.step % task.steps_per_epoch or task.steps_per_epoch
        if (now := time.monotonic()) - last_progress > PROGRESS_SECONDS:
            last_progress = now
            guard.check()
            hooks.progress(state.step, _means(task, running_losses, done_in_epoch))
        if done_in_epoch == task.steps_per_epoch:
            guard.check()
            validation = _validate(task, compute)
            _keep_best(task, state, validation)
            epoch = state.step // task.steps_per_epoch
            train = _means(task, distributed.all_reduce_sum(running_losses) / distributed.world_size(), done_in_epoch)
            hooks.epoch(EpochMetrics(epoch, state.step, train, validation, time.monotonic() - epoch_started))
            running_losses.zero_()
            epoch_started = time.monotonic()
        pausing = hooks.pause.due
        if pausing or hooks.checkpoint_due():
            guard.check()
            state.optimizer, state.running_losses = optimizer_tensors(optimizer), running_losses
            state.auxiliary = {} if task.auxiliary is None else task.auxiliary.state_dict()
            hooks.checkpoint(state)
        if pausing:
            raise Paused(f"{task.name} stage, step {state.step:,}")

    hooks.last_epoch()
    task.module.load_state_dict(state.best)


class DivergenceGuard:
    """Stops a run whose loss became NaN or infinite, without waiting for the device at every step."""

    def __init__(self, stage: str, device: torch.device) -> None:
        self.stage = stage
        self.first_nonfinite = torch.full((), torch.iinfo(torch.int64).max, device=device)

    def observe(self, loss: Tensor, step: int) -> None:
        """Note the first step whose loss is not finite."""
        self.first_nonfinite = torch.where(torch.isfinite(loss), self.first_nonfinite, self.first_nonfinite.clamp(max=step))

    def check(self) -> None:
        """Raise if a loss was not finite; waits for the device."""
        if (step := int(self.first_nonfinite)) < torch.iinfo(torch.int64).max:
            raise _diverged(self.stage, step)


def _diverged(stage: str, step: int) -> UserError:
    return UserError(
        f"the loss became NaN or infinite at step {step} of the {stage} stage; the last good checkpoint is kept, "
        f"lower the learning rate with `overrides` {stage}.lr=… and choose another `out`"
    )


def _means(task: Task, running_losses: Tensor, steps: int) -> Metrics:
    return dict(zip(task.loss_names, (running_losses / steps).tolist(), strict=True))


def _validate(task: Task, compute: Compute) -> Metrics:
    task.objective.eval()
    with compute.autocast():
        return task.validate()


def _keep_best(task: Task, state: StageState, validation: Metrics) -> None:
    loss = next(iter(validation.values()))
    if not math.isfinite(loss):  # as the best it would never be replaced
        raise _diverged(task.name, state.step - 1)
    if task.keeps_last or state.best_loss is None or loss < state.best_loss:
        state.best_loss = loss
        state.best = {name: tensor.detach().clone() for name, tensor in task.module.state_dict().items()}
