"""Starting and ending a data-parallel run. `torchrun` sets the variables; without them a run is alone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from anytime.core import distributed


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
    return distributed.rank() == 0


def wrapped(module: nn.Module) -> nn.Module:
    """The module itself, or one that averages its gradients over all ranks."""
    if distributed.ranks() == 1:
        return module
    # Buffers (batch norm, running-mean codebook) are computed from global sums and agree already.
    with warnings.catch_warnings():  # torch 2.13 has a new name for this argument, which torch 2.11 does not know
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(module, broadcast_buffers=False)


def barrier() -> None:
    """Wait for all ranks."""
    if distributed.ranks() > 1:
        dist.barrier()
