"""One training step, forward to update: called as it is, or captured once as a CUDA graph and replayed.

A small network's step is some hundred short kernels, and launching them one by one takes several times longer than
running them. A captured step is launched as one.
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
"""Inputs of a step -> its losses, with the weights moved on. The losses may be overwritten by the next step."""


@dataclass(frozen=True, slots=True)
class Compute:
    """How the steps are computed."""

    device: torch.device
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    graph: bool = False

    def autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def step(self, task: Task, optimizer: torch.optim.Optimizer) -> Step:
        """The task's step for this device."""
        objective = wrap_ddp(task.objective)
        if self.compile:
            objective = torch.compile(objective)  # type: ignore[assignment]
        eager = EagerStep(task, objective, optimizer, self)
        return CUDAGraphStep(eager) if self.graph and self.device.type == "cuda" and distributed.world_size() == 1 else eager


class EagerStep:
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
    """The first steps run eagerly, as capture wants warm kernels and allocators; the rest are replays."""

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
        # Capture refuses work that touched the default stream; warm-up must leave no trace there.
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
    """Set the learning rate, times what a group has of its own; a graph reads it from a tensor."""
    for group in optimizer.param_groups:
        own = lr * group.get("lr_scale", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
