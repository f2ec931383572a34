"""The one training loop. Every stage of every model goes through `run_stage`, top to bottom.

A step is a pure function of (seed, stage, step) and the weights: batches, truncations and dropout are addressed, not drawn.
So a run that was killed and resumed computes what an uninterrupted one would have.
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
from anytime.training.step import Compute, set_rate
from anytime.training.tasks.autoencoder import Numbers, Task

PROGRESS_SECONDS = 0.25  # reading the losses waits for the device: often enough for the eye, too seldom to cost


@dataclass
class StageState:
    """Where a stage stands; the loop moves it on."""

    step: int = 0
    best_loss: float | None = None
    best: dict[str, Tensor] = field(default_factory=dict)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    others: dict[str, Tensor] = field(default_factory=dict)  # of what is trained beside the module
    running: Tensor = field(default_factory=lambda: torch.zeros(0))  # sums of the epoch so far; empty at its beginning


@dataclass(frozen=True, slots=True)
class Hooks:
    """What happens around the steps, besides training."""

    progress: Callable[[int, Numbers], None]
    epoch: Callable[[int, int, Numbers, Numbers, float], None]  # epoch, step, train, validation, seconds
    checkpoint_due: Callable[[], bool]
    checkpoint: Callable[[StageState], None]
    pause: Pause = NEVER  # for a run that is alone: ranks would have to stop at the same step


def run_stage(task: Task, state: StageState, compute: Compute, hooks: Hooks, seed: int) -> None:
    """Train `task` from `state` to its end; leaves the weights of the smallest validation loss in `task.module`, or the last.

    `Paused` comes after a step whose checkpoint is written.
    """
    optimizer = task.optimizer()
    if state.optimizer:
        restore_optimizer(optimizer, state.optimizer)
    if task.others is not None and state.others:
        task.others.load_state_dict(state.others)
    move = compute.step(task, optimizer)
    running = torch.zeros(len(task.loss_names), dtype=torch.float64, device=compute.device)
    if len(state.running):
        running += state.running.to(compute.device)
    watch = Watch(task.name, compute.device)
    shown = epoch_started = time.monotonic()

    for step in range(state.step, task.epochs * task.steps_per_epoch):
        # Dropout is the only thing that draws from torch's generator; each rank and step has its own stream.
        torch.manual_seed(random.derive(seed, step, distributed.rank()))
        set_rate(optimizer, task.rate(step))
        task.objective.train()
        losses = move(task.inputs(step))
        task.after_step(step)
        running += losses
        watch.see(losses[0], step)
        state.step = step + 1

        done_in_epoch = state.step % task.steps_per_epoch or task.steps_per_epoch
        if (now := time.monotonic()) - shown > PROGRESS_SECONDS:
            shown = now
            watch.check()
            hooks.progress(state.step, _means(task, running, done_in_epoch))
        if done_in_epoch == task.steps_per_epoch:
            watch.check()
            validation = _validated(task, compute)
            _keep_best(task, state, validation)
            epoch = state.step // task.steps_per_epoch
            train = _means(task, distributed.total(running) / distributed.ranks(), done_in_epoch)
            hooks.epoch(epoch, state.step, train, validation, time.monotonic() - epoch_started)
            running.zero_()
            epoch_started = time.monotonic()
        pausing = hooks.pause.due
        if pausing or hooks.checkpoint_due():
            watch.check()
            state.optimizer, state.running = optimizer_tensors(optimizer), running
            state.others = {} if task.others is None else task.others.state_dict()
            hooks.checkpoint(state)
        if pausing:
            raise Paused(f"{task.name} stage, step {state.step:,}")

    task.module.load_state_dict(state.best)


class Watch:
    """Stops a run whose loss is no longer a number, without waiting for the device at every step."""

    def __init__(self, stage: str, device: torch.device) -> None:
        self.stage = stage
        self.first_bad = torch.full((), torch.iinfo(torch.int64).max, device=device)

    def see(self, loss: Tensor, step: int) -> None:
        self.first_bad = torch.where(torch.isfinite(loss), self.first_bad, self.first_bad.clamp(max=step))

    def check(self) -> None:
        if (step := int(self.first_bad)) < torch.iinfo(torch.int64).max:
            raise _diverged(self.stage, step)


def _diverged(stage: str, step: int) -> UserError:
    return UserError(
        f"the loss became NaN or infinite at step {step} of the {stage} stage; the last good checkpoint is kept, "
        f"lower the rate with --set {stage}.rate=… and another --out"
    )


def _means(task: Task, running: Tensor, steps: int) -> Numbers:
    return dict(zip(task.loss_names, (running / steps).tolist(), strict=True))


def _validated(task: Task, compute: Compute) -> Numbers:
    task.objective.eval()
    with compute.autocast():
        return task.validate()


def _keep_best(task: Task, state: StageState, validation: Numbers) -> None:
    loss = next(iter(validation.values()))
    if not math.isfinite(loss):  # kept as the best it would never be beaten
        raise _diverged(task.name, state.step - 1)
    if task.keeps_last or state.best_loss is None or loss < state.best_loss:
        state.best_loss = loss
        state.best = {name: tensor.detach().clone() for name, tensor in task.module.state_dict().items()}
