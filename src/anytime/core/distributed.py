"""Data-parallel training: sums over the ranks. In a single process every function here is the identity."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anytime.core.errors import UserError
from anytime.core.ranks import read_ranks


def world_size() -> int:
    """Return the number of processes of this run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def all_reduce_sum(value: Tensor) -> Tensor:
    """Return the sum of `value` over all ranks, without gradients."""
    if world_size() == 1:
        return value
    value = value.detach().clone()
    dist.all_reduce(value)
    return value


def all_reduce_sum_with_grad(value: Tensor) -> Tensor:
    """Return the sum of `value` over all ranks; its gradient is summed over the ranks too."""
    if world_size() == 1:
        return value
    summed: Tensor = _AllReduceSum.apply(value)  # type: ignore[no-untyped-call]
    return summed


class _AllReduceSum(torch.autograd.Function):
    """The same as torch.distributed.nn.functional.all_reduce, which torch 2.13 deprecates."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return all_reduce_sum(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return all_reduce_sum(gradient)


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Join the other ranks, if any; yield the device of this rank."""
    ranks = read_ranks()
    if ranks.world_size == 1:
        yield device
        return
    if device.type == "cuda":
        if ranks.local_rank >= (found := torch.cuda.device_count()):
            raise UserError(f"LOCAL_RANK={ranks.local_rank} needs its own GPU, and there are {found}; start fewer processes")
        device = torch.device("cuda", ranks.local_rank)
        torch.cuda.set_device(device)
    _join("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _join(backend: str) -> None:
    """Join the process group that the environment names."""
    try:
        dist.init_process_group(backend)
    except (dist.DistError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"the other ranks cannot be reached ({reason}); check MASTER_ADDR and MASTER_PORT") from None


def is_main() -> bool:
    """Return whether this is the rank that writes files and reports progress."""
    return rank() == 0


def wrap_ddp(module: nn.Module) -> nn.Module:
    """Return the module; with several ranks, wrapped so that gradients are averaged over them."""
    if world_size() == 1:
        return module
    # Buffers (batch norm, EMA codebook) are computed from global sums and are equal on all ranks already.
    with warnings.catch_warnings():  # torch 2.13 renames this argument; torch 2.11 has only the old name
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(module, broadcast_buffers=False)


def barrier() -> None:
    """Wait for all ranks."""
    if world_size() > 1:
        dist.barrier()
