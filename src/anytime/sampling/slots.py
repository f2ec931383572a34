"""Slots: rows of many requests that step together, each at its own position, with its own seed and settings.

A server's requests join and leave between any two steps. A row's codes are those of `model.sample` with the same seed, whatever
is computed beside it (law 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.core.errors import UserError
from anytime.priors.transformer import KVCache, Transformer
from anytime.sampling.engines.base import Engine, Request
from anytime.sampling.engines.cached_transformer import CachedTransformer
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.gumbel import GumbelNoise, filter_rows


@dataclass(eq=False)  # compared by identity
class SlotGroup:
    """The rows of one request. Only the table writes its fields."""

    request: Request
    slots: list[int]  # one for each row
    position: int = 0  # steps of the prior so far

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.slots)

    @property
    def count(self) -> int:
        """Codes available, given or sampled."""
        return max(self.request.codes.shape[1], self.position)


@runtime_checkable
class SlotTable(Protocol):
    """Preallocated slots on one device."""

    @property
    def capacity(self) -> int:
        """Number of slots."""

    @property
    def free(self) -> int:
        """Slots that no row occupies."""

    def join(self, request: Request) -> SlotGroup:
        """Give every row of a request a slot. Some tables sample the first code at once, others with the first step."""

    def step(self, groups: Sequence[SlotGroup]) -> None:
        """Run one step for the rows of these groups: feed the previous code, sample the next unless it is given."""

    def codes(self, group: SlotGroup) -> Int[Tensor, "n count"]:
        """Return a copy of all codes available."""

    def decode(self, codes: Int[Tensor, "n count"]) -> Float[Tensor, "n ..."]:
        """Return complete samples; the device has finished when it returns."""

    def leave(self, group: SlotGroup) -> None:
        """Free the slots of a group."""

    def wait(self) -> None:
        """Return when the device has finished its steps."""


def build_slots(engine: Engine, capacity: int) -> SlotTable:
    """Return a table of slots for an engine."""
    from anytime.sampling.engines.cuda import CudaEngine
    from anytime.sampling.engines.cuda_slots import CudaSlots

    if isinstance(engine, CudaEngine):
        return CudaSlots(engine, capacity)
    if isinstance(engine, EagerEngine) and isinstance(engine.prior, Transformer | CachedTransformer):
        return EagerSlots(engine, engine.prior, capacity)
    raise UserError("a server needs a Transformer prior and `engine` eager, packed, onnx or cuda")


@dataclass(eq=False)
class EagerGroup(SlotGroup):
    """A group with its noise, which is computed for several positions at once."""

    noise: GumbelNoise = field(kw_only=True)


class EagerSlots:
    """Slots of all engines but cuda. Rows in use are at the front, those of a step first: no work is wasted."""

    def __init__(self, engine: EagerEngine, prior: Transformer | CachedTransformer, capacity: int) -> None:
        self.engine, self.prior, self.capacity, device = engine, prior, capacity, engine.device
        self._owners: list[SlotGroup] = []  # of the slots in use, in order
        self._cache = prior.start(capacity)
        self._codes = torch.zeros(capacity, prior.length, dtype=torch.long, device=device)
        self._position = torch.zeros(capacity, dtype=torch.long, device=device)
        self._temperature, self._top_p = torch.ones(capacity, 1, device=device), torch.ones(capacity, device=device)
        self._top_k = torch.ones(capacity, dtype=torch.long, device=device)
        with torch.no_grad():
            self._first_logits, self._first_cache = prior.step(None, prior.start(1))

    @property
    def free(self) -> int:
        """Slots that no row occupies."""
        return self.capacity - len(self._owners)

    @torch.no_grad()
    def join(self, request: Request) -> SlotGroup:
        """Place the rows after those in use. The first step is the same for every row and was computed once."""
        (n, given), begin = request.codes.shape, len(self._owners)
        if n > self.free:
            raise ValueError(f"{n} rows do not fit into {self.free} free slots")
        rows = request.rows.to(self._codes.device)
        noise = GumbelNoise(request.seed, rows, self.prior.codebook_size)
        group, new = EagerGroup(request, list(range(begin, begin + n)), noise=noise), slice(begin, begin + n)
        self._owners += [group] * n
        for table, first in ((self._cache.keys, self._first_cache.keys), (self._cache.values, self._first_cache.values)):
            table[:, new, :, 0] = first[:, :, :, 0]
        self._position[new] = 0
        self._codes[new, :given] = request.codes.to(self._codes.device)
        self._temperature[new] = request.settings.temperature
        self._top_k[new], self._top_p[new] = request.settings.limits(self.prior.codebook_size)
        self._sample(self._first_logits.expand(n, -1), [group], begin)
        return group

    @torch.no_grad()
    def step(self, groups: Sequence[SlotGroup]) -> None:
        """Run one step for these groups, after moving their rows to the front."""
        self._move_to_front(groups)
        rows = sum(group.size for group in groups)
        position = self._position[:rows]
        previous = self._codes[:rows].gather(1, position[:, None] - 1)[:, 0]
        positions = {group.position for group in groups}
        keys, values = self._cache.keys[:, :rows], self._cache.values[:, :rows]
        cache = KVCache(keys, values, position, max(positions), is_uniform=len(positions) == 1)
        logits, _ = self.prior.step(previous, cache)
        self._sample(logits, groups, 0)

    def _sample(self, logits: Float[Tensor, "rows categories"], groups: Sequence[SlotGroup], begin: int) -> None:
        """Sample the next code of each row, unless it is given, and advance; the first row is in the slot `begin`."""
        slots = torch.tensor([slot for group in groups for slot in group.slots], device=logits.device)
        scores = (logits / self._temperature[begin : begin + len(slots)])[slots - begin]
        if any(group.request.settings.filters for group in groups):
            scores = filter_rows(scores, self._top_k[slots], self._top_p[slots])
        noise = [group.noise.at(group.position) for group in groups if isinstance(group, EagerGroup)]
        sampled, first = (scores + torch.cat(noise)).argmax(-1), 0
        for group in groups:
            if group.position >= group.request.codes.shape[1]:
                self._codes[slots[first : first + group.size], group.position] = sampled[first : first + group.size]
            first += group.size
            group.position += 1
        self._position[begin : begin + len(slots)] += 1

    def codes(self, group: SlotGroup) -> Int[Tensor, "n count"]:
        """Return a copy of all codes available."""
        return self._codes[group.slots, : group.count]

    def decode(self, codes: Int[Tensor, "n count"]) -> Float[Tensor, "n ..."]:
        """Decode as the engine does."""
        data = self.engine.decode(codes.to(self.engine.device))
        self.engine.wait()
        return data

    def leave(self, group: SlotGroup) -> None:
        """Fill the slots with the last rows in use."""
        kept = [slot for slot, owner in enumerate(self._owners) if owner is not group]
        used, holes = len(kept), [slot for slot in group.slots if slot < len(kept)]
        self._copy([slot for slot in kept if slot >= used], holes)
        del self._owners[used:]

    def wait(self) -> None:
        """Synchronise a GPU."""
        self.engine.wait()

    def _move_to_front(self, groups: Sequence[SlotGroup]) -> None:
        chosen, rows = set(map(id, groups)), sum(group.size for group in groups)
        inside = [slot for slot in range(rows) if id(self._owners[slot]) not in chosen]
        outside = [slot for group in groups for slot in group.slots if slot >= rows]
        self._copy([*inside, *outside], [*outside, *inside])

    def _copy(self, sources: list[int], targets: list[int]) -> None:
        """Give the rows in `sources` the slots `targets`."""
        if not sources:
            return
        one, other = (torch.tensor(slots, device=self._codes.device) for slots in (targets, sources))
        filled = int(self._position[other].max())
        for table in (self._cache.keys, self._cache.values):
            table[:, one, :, :filled] = table[:, other, :, :filled]
        for tensor in (self._codes, self._position, self._temperature, self._top_k, self._top_p):
            tensor[one] = tensor[other]
        owners = [self._owners[slot] for slot in sources]
        places = [owner.slots.index(slot) for owner, slot in zip(owners, sources, strict=True)]
        for owner, place, target in zip(owners, places, targets, strict=True):
            owner.slots[place] = target
            self._owners[target] = owner
