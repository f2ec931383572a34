"""One training step: eager, or captured once as a CUDA graph and replayed.

The step of a small network is about a hundred short kernels. Launching them one by one takes several times longer than
running them; a captured step is one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from anytime.core import distributed
from anytime.core.distributed import wrap_ddp
from anytime.training.tasks.task import Task

Step = Callable[[tuple[Tensor, ...]], Tensor]
"""Updates the weights and returns the losses, which the next step may overwrite."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Device, precision and compilation of the steps."""

    device: torch.device
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    graph: bool = False

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which losses are computed."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def step(self, task: Task, optimizer: torch.optim.Optimizer) -> Step:
        """Return the training step of a task. A CUDA graph holds it only when there is one rank."""
        objective = wrap_ddp(task.objective)
        if self.compile:
            objective = torch.compile(objective)  # type: ignore[assignment]
        eager = EagerStep(task, objective, optimizer, self)
        return CUDAGraphStep(eager) if self.graph and self.device.type == "cuda" and distributed.world_size() == 1 else eager


class EagerStep:
    """Forward, backward, update."""

    def __init__(self, task: Task, objective: nn.Module, optimizer: torch.optim.Optimizer, compute: Compute) -> None:
        self.task, self.objective, self.optimizer, self.compute = task, objective, optimizer, compute

    def __call__(self, inputs: tuple[Tensor, ...]) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with self.compute.autocast():
            losses = self.task.losses(self.objective, *inputs)
        losses[0].backward()
        self.optimizer.step()
        return losses.detach()


class CUDAGraphStep:
    """Runs the first steps eagerly, because capture needs warm kernels and allocators; replays the rest."""

    WARMUP_STEPS = 3

    def __init__(self, eager: EagerStep) -> None:
        self.eager = eager
        self.done = 0
        self.graph = torch.cuda.CUDAGraph()
        self.inputs: tuple[Tensor, ...] = ()
        self.losses = torch.empty(0)

    def __call__(self, inputs: tuple[Tensor, ...]) -> Tensor:
        self.done += 1
        if self.done <= self.WARMUP_STEPS:
            return self._on_side_stream(inputs)
        if self.done == self.WARMUP_STEPS + 1:
            self._capture(inputs)
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        return self.losses

    def _on_side_stream(self, inputs: tuple[Tensor, ...]) -> Tensor:
        # Capture refuses work that touched the default stream, so warm-up runs on another.
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            losses = self.eager(inputs)
        torch.cuda.current_stream().wait_stream(side_stream)
        return losses

    def _capture(self, inputs: tuple[Tensor, ...]) -> None:
        self.inputs = tuple(given.clone() for given in inputs)
        self.eager.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.losses = self.eager(self.inputs)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of each group, times its `lr_scale`; a CUDA graph reads it from a tensor."""
    for group in optimizer.param_groups:
        group_lr = lr * group.get("lr_scale", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(group_lr)
        else:
            group["lr"] = group_lr
