"""Sums over the ranks of a data-parallel run. Alone, every function here is the identity."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def ranks() -> int:
    """How many processes share this run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if ranks() > 1 else 0


def total(value: Tensor) -> Tensor:
    """The sum of `value` over all ranks, the same on each; gradients do not pass."""
    if ranks() == 1:
        return value
    value = value.detach().clone()
    dist.all_reduce(value)
    return value


def total_with_gradient(value: Tensor) -> Tensor:
    """The sum of `value` over all ranks; the gradient is summed over the ranks on its way back."""
    if ranks() == 1:
        return value
    summed: Tensor = _Total.apply(value)  # type: ignore[no-untyped-call]
    return summed


class _Total(torch.autograd.Function):
    """What torch.distributed.nn.functional.all_reduce does, which torch 2.13 deprecates."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return total(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return total(gradient)
