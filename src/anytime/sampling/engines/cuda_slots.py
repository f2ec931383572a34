"""Slots of the cuda engine: one set of buffers, with a CUDA graph of a step for each number of rows computed.

A step computes all slots up to the highest one in use. Rows that are not stepped are inactive: they are computed too, which
costs next to nothing on a GPU, and keep their codes and positions.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.sampling.engines.base import Request
from anytime.sampling.engines.cuda import CudaEngine
from anytime.sampling.engines.cuda_step import StepBuffers, bucket, capture
from anytime.sampling.slots import SlotGroup

ACTIVE = 4  # column of `StepBuffers.request`


def graph_sizes(capacity: int) -> list[int]:
    """Return the numbers of rows that graphs are captured for: powers of two and three quarters of them.

    >>> graph_sizes(100)
    [8, 12, 16, 24, 32, 48, 64, 96, 100]
    """
    sizes = {size * share // 4 for size in (1 << power for power in range(3, capacity.bit_length() + 1)) for share in (3, 4)}
    return sorted({size for size in sizes if 8 <= size < capacity} | {capacity})


@dataclass(eq=False)
class CudaGroup(SlotGroup):
    """A group with its slots as the device knows them."""

    index: Int[Tensor, " n"] = field(kw_only=True)


class CudaSlots:
    """A table of slots on a GPU. Building it captures all graphs, so that no request waits for one."""

    def __init__(self, engine: CudaEngine, capacity: int) -> None:
        self.engine, self.capacity, self._sizes = engine, capacity, graph_sizes(capacity)
        self._buffers = StepBuffers.empty(engine.step_once.prior, capacity, engine.device)
        self._free, self._active = list(range(capacity)), list[SlotGroup]()
        self._in_flight = [torch.cuda.Event(), torch.cuda.Event()]  # of the last step, and of the one before
        self._graphs = {(filters, size): self._capture(filters, size) for filters in (False, True) for size in self._sizes}
        for size in sorted({bucket(rows) for rows in range(1, capacity + 1)}):
            engine.decode(torch.zeros(size, 1, dtype=torch.long, device=engine.device))
        torch.cuda.synchronize(engine.device)

    def _capture(self, filters: bool, size: int) -> torch.cuda.CUDAGraph:
        """Capture a step. No row is active, so the runs before it change nothing."""
        front = self._buffers.front(size)
        return capture(lambda: self.engine.step_once(front, filters), lambda: None)

    @property
    def free(self) -> int:
        """Slots that no row occupies."""
        return len(self._free)

    @torch.no_grad()
    def join(self, request: Request) -> SlotGroup:
        """Take the lowest free slots; the first code comes with the first step."""
        n = len(request.rows)
        if n > self.free:
            raise ValueError(f"{n} rows do not fit into {self.free} free slots")
        slots = [heapq.heappop(self._free) for _ in range(n)]
        group = CudaGroup(request, slots, index=torch.tensor(slots, device=self.engine.device))
        self._buffers.position.index_fill_(0, group.index, 0)
        self._buffers.write(group.index, request, self.engine.prior.codebook_size)
        self._active.append(group)
        return group

    @torch.no_grad()
    def step(self, groups: Sequence[SlotGroup]) -> None:
        """Replay the graph of the smallest size that covers these groups."""
        if set(groups) != set(self._active):
            flags = np.zeros(self.capacity, np.int32)
            flags[[slot for group in groups for slot in group.slots]] = 1
            self._buffers.request[:, ACTIVE] = torch.from_numpy(flags).to(self.engine.device)
            self._active = list(groups)
        highest = max(max(group.slots) for group in groups)
        size = next(size for size in self._sizes if size > highest)
        self._graphs[any(group.request.settings.filters for group in groups), size].replay()
        self._in_flight.reverse()
        self._in_flight[0].record()
        for group in groups:
            group.position += 1

    def codes(self, group: SlotGroup) -> Int[Tensor, "n count"]:
        """Return a copy of all codes available."""
        assert isinstance(group, CudaGroup)
        return self._buffers.codes[:, : group.count].index_select(0, group.index).long()

    def decode(self, codes: Int[Tensor, "n count"]) -> Float[Tensor, "n ..."]:
        """Decode with the engine's decoder and wait for it."""
        data = self.engine.decode(codes)
        self.engine.wait()
        return data

    def leave(self, group: SlotGroup) -> None:
        """Free the slots."""
        for slot in group.slots:
            heapq.heappush(self._free, slot)
        self._active = [active for active in self._active if active is not group] if group in self._active else self._active

    def wait(self) -> None:
        """Return when the step before the last one has finished, so that the device never waits for the host."""
        self._in_flight[1].synchronize()
