"""Data-parallel training: sums over the ranks. In a single process every function here is the identity."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anytime.core.errors import UserError
from anytime.core.heartbeat import Heartbeat
from anytime.core.ranks import read_ranks
from anytime.core.rendezvous import join, lost_ranks


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
    device = rank_device(device)
    store = join("nccl" if device.type == "cuda" else "gloo", ranks)
    with Heartbeat(store, ranks.rank, ranks.world_size):
        with lost_ranks():
            yield device
            dist.barrier()
        dist.destroy_process_group()  # after an error it could wait for ranks that are gone; the process is to end


def rank_device(device: torch.device) -> torch.device:
    """Return the device of this rank: with several ranks, each has its own GPU."""
    ranks = read_ranks()
    if ranks.world_size == 1 or device.type != "cuda":
        return device
    if ranks.local_rank >= (found := torch.cuda.device_count()):
        raise UserError(f"LOCAL_RANK={ranks.local_rank} needs its own GPU, and there are {found}; start fewer processes")
    device = torch.device("cuda", ranks.local_rank)
    torch.cuda.set_device(device)
    return device


def check_same(text: str, device: torch.device, sentence: str) -> None:
    """Refuse, with `sentence`, a text that differs between the ranks."""
    if world_size() == 1:
        return
    number = int.from_bytes(hashlib.sha256(text.encode(errors="backslashreplace")).digest()[:7], "big")
    bounds = torch.tensor([number, -number], device=device)
    dist.all_reduce(bounds, dist.ReduceOp.MAX)
    if int(bounds[0]) != -int(bounds[1]):
        raise UserError(sentence)


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
        wrapped = DistributedDataParallel(module, broadcast_buffers=False)
    if next(module.parameters()).device.type == "cpu":
        wrapped.register_comm_hook(None, lambda _, bucket: _average_in_rank_order(bucket))
    return wrapped


def _average_in_rank_order(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Average gradients so that no bit depends on their place in the bucket.

    gloo adds the ranks of each part of a bucket in another order, and DDP reorders its buckets after the first step: a
    resumed run of three ranks or more would differ in the last bits from an uninterrupted one.
    """
    own = bucket.buffer()
    parts = [torch.empty_like(own) for _ in range(world_size())]
    gathered = dist.all_gather(parts, own, async_op=True)
    assert gathered is not None
    averaged: torch.futures.Future[Tensor] = _average_when(gathered.get_future(), parts)
    return averaged


def _average_when(gathered: Any, parts: list[Tensor]) -> Any:
    """Average tensors in their order when a future of gathering them is done; the new future has its error, if any."""

    def average(done: Any) -> Tensor:
        done.wait()  # raises if a rank is gone: torch calls this in any case, and `parts` would be memory of any content
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total / len(parts)

    return gathered.then(average)


def barrier() -> None:
    """Wait for all ranks."""
    if world_size() > 1:
        dist.barrier()
