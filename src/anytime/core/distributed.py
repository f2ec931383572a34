"""Sums over the ranks of a data-parallel run. Alone, every function here is the identity."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def world_size() -> int:
    """How many processes share this run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def all_reduce_sum(value: Tensor) -> Tensor:
    """The sum of `value` over all ranks, the same on each; gradients do not pass."""
    if world_size() == 1:
        return value
    value = value.detach().clone()
    dist.all_reduce(value)
    return value


def all_reduce_sum_with_grad(value: Tensor) -> Tensor:
    """The sum of `value` over all ranks; the gradient is summed over the ranks on its way back."""
    if world_size() == 1:
        return value
    summed: Tensor = _AllReduceSum.apply(value)  # type: ignore[no-untyped-call]
    return summed


class _AllReduceSum(torch.autograd.Function):
    """What torch.distributed.nn.functional.all_reduce does, which torch 2.13 deprecates."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return all_reduce_sum(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return all_reduce_sum(gradient)


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Join the other ranks, if there are any; yields the device that is this rank's own."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
        dist.barrier()
    finally:
        dist.destroy_process_group()


def is_main() -> bool:
    """Whether this rank writes files and speaks."""
    return rank() == 0


def wrap_ddp(module: nn.Module) -> nn.Module:
    """The module itself, or one that averages its gradients over all ranks."""
    if world_size() == 1:
        return module
    # Buffers (batch norm, running-mean codebook) are computed from global sums and agree already.
    with warnings.catch_warnings():  # torch 2.13 has a new name for this argument, which torch 2.11 does not know
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(module, broadcast_buffers=False)


def barrier() -> None:
    """Wait for all ranks."""
    if world_size() > 1:
        dist.barrier()
