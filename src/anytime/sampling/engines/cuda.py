"""The cuda engine: a whole step as one CUDA graph for each batch bucket, on copies of the weights."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.core import random
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import DTYPES, Draft, Rows
from anytime.sampling.engines.cuda_decoder import Decoder
from anytime.sampling.engines.cuda_step import FEW, Buffers, Step, Weights, bucket, capture
from anytime.sampling.gumbel import Settings, masked

LARGEST = 32768
"""Rows of the largest bucket; past it nothing is gained."""
MEMORY = 0.5  # of the device's, that the largest bucket's cache may take
DECODED = 4096
"""Rows decoded at a time."""
STRIDES = (16, 8, 4, 2, 1)
"""Steps in one graph where nobody watches: between two graphs a card pauses, which few rows feel."""


def stride_after(asked: int, left: int) -> int:
    """Steps in the next graph when so many have been asked for and so many are left.

    Asking for a graph takes almost as long as running it, and it runs when all of it has been asked for. So the first ones are
    short, and none is longer than half of what the card has had to do before it.

    >>> done, strides = 0, []
    >>> while done < 32:
    ...     strides.append(stride_after(done, 32 - done))
    ...     done += strides[-1]
    >>> strides
    [1, 1, 1, 1, 2, 2, 4, 4, 8, 8]
    """
    return next(steps for steps in STRIDES if steps <= min(left, max(1, asked // 2)))


@dataclass
class Arena:
    """The buffers of one bucket, the graphs captured on them, and whose rows are in them now."""

    buffers: Buffers
    graphs: dict[tuple[Settings | None, int], torch.cuda.CUDAGraph] = field(default_factory=dict)  # by cuts and steps
    owner: weakref.ref[Rows] | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """Rows that had to leave their arena to others."""

    codes: Tensor
    keys: Tensor
    values: Tensor


class CudaEngine:
    name = "cuda"

    def __init__(self, prior: Transformer, autoencoder: VQVAE, device: torch.device, precision: str) -> None:
        self.prior, self.device, self.precision = prior, device, precision
        self._step = Step(Weights.of(prior, DTYPES[precision]))
        self._decoder = Decoder(autoencoder, DTYPES[precision])
        self._arenas: dict[int, Arena] = {}
        self._lock = threading.RLock()
        row_bytes = 2 * prior.config.layers * prior.length * prior.config.width * DTYPES[precision].itemsize
        room = int(MEMORY * torch.cuda.get_device_properties(device).total_memory) // row_bytes
        self.block = min(LARGEST, 1 << max(0, room.bit_length() - 1))
        self.wave = self.block

    def ready(self, draft: Draft) -> bool:
        size = bucket(len(draft.rows))
        return size in self._arenas and (_cuts(draft.settings), 1) in self._arenas[size].graphs and self._decoder.ready(size)

    @torch.no_grad()
    def warm(self, draft: Draft) -> None:
        with self._lock:
            self._captured(self._arena(len(draft.rows)), draft.settings, 1)
            self.decode(torch.zeros(len(draft.rows), 1, dtype=torch.long, device=self.device))
            self.wait()

    def start(self, draft: Draft) -> Rows:
        return Rows(draft)

    @torch.no_grad()
    def step(self, rows: Rows, times: int = 1) -> None:
        with self._lock:
            arena, asked = self._arena(len(rows.draft.rows)), 0
            few = len(arena.buffers.position) <= FEW
            while asked < times:
                stride = stride_after(asked, times - asked) if few else 1
                graph = self._captured(arena, rows.draft.settings, stride)
                self._enter(arena, rows)
                graph.replay()
                rows.fed += stride
                asked += stride

    @torch.no_grad()
    def codes(self, rows: Rows) -> Int[Tensor, "n count"]:
        with self._lock:
            arena = self._arenas.get(bucket(len(rows.draft.rows)))
            if arena is not None and arena.owner is not None and arena.owner() is rows:
                return arena.buffers.codes[: len(rows.draft.rows), : rows.count].long()
            if isinstance(rows.state, Saved):
                return rows.state.codes[:, : rows.count].long()
            return rows.draft.codes.to(self.device)

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *place"]:
        with self._lock:
            codes = codes.to(self.device)
            return (
                self._decoder(codes) if len(codes) <= DECODED else torch.cat([self._decoder(c) for c in codes.split(DECODED)])
            )

    def wait(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()

    def release(self) -> None:
        with self._lock:
            for arena in self._arenas.values():
                self._dismiss(arena)
            self._arenas.clear()
            self._decoder.release()
            torch.cuda.empty_cache()

    def _arena(self, rows: int) -> Arena:
        size = bucket(rows)
        if size not in self._arenas:
            try:
                buffers = Buffers.empty(self._step.weights, size, self.device)
            except torch.OutOfMemoryError:  # other buckets may hold what is missing
                self.release()
                buffers = Buffers.empty(self._step.weights, size, self.device)
            self._arenas[size] = Arena(buffers)
        return self._arenas[size]

    def _captured(self, arena: Arena, settings: Settings, steps: int) -> torch.cuda.CUDAGraph:
        """The graph of so many steps on these buffers. Whoever is in the arena is put out first: capturing runs some steps."""
        cuts = _cuts(settings)
        if (cuts, steps) not in arena.graphs:
            self._leave(arena)
            cut = None if cuts is None else (lambda logits: masked(logits, cuts))

            def work() -> None:
                for _ in range(steps):
                    self._step(arena.buffers, cut)

            arena.graphs[cuts, steps] = capture(work, lambda: arena.buffers.position.zero_())
        return arena.graphs[cuts, steps]

    def _enter(self, arena: Arena, rows: Rows) -> None:
        """Make the arena this work's, bringing back what it had when it left."""
        if arena.owner is not None and arena.owner() is rows:
            return
        self._leave(arena)
        n, draft, buffers = len(rows.draft.rows), rows.draft, arena.buffers
        buffers.position.fill_(rows.fed)
        temperature = draft.settings.temperature
        if isinstance(temperature, tuple):
            buffers.temperature.copy_(torch.tensor(temperature))
        else:
            buffers.temperature.fill_(temperature)
        request = torch.tensor([*random.key(draft.seed), rows.given], dtype=torch.int32)
        buffers.request[: 3 + n] = torch.cat([request, draft.rows.to("cpu", torch.int32)])
        if rows.given:
            buffers.codes[:n, : rows.given] = draft.codes.to(torch.int32)
        if rows.state is not None:
            buffers.codes[:n] = rows.state.codes
            buffers.keys[:, :n, :, : rows.fed] = rows.state.keys
            buffers.values[:, :n, :, : rows.fed] = rows.state.values
            rows.state = None
        arena.owner = weakref.ref(rows)

    def _dismiss(self, arena: Arena) -> None:
        """Take the arena from its rows, keeping their codes only, as if given; the cache is then built from them anew."""
        rows = arena.owner() if arena.owner is not None else None
        arena.owner = None
        if rows is not None:
            codes = arena.buffers.codes[: len(rows.draft.rows), : rows.count].long().cpu()
            rows.draft, rows.fed, rows.state = replace(rows.draft, codes=codes), 0, None

    def _leave(self, arena: Arena) -> None:
        """Put the arena's rows aside, if anybody still holds them."""
        rows = arena.owner() if arena.owner is not None else None
        arena.owner = None
        if rows is None:
            return
        n, buffers = len(rows.draft.rows), arena.buffers
        fed = rows.fed if rows.fed < self.prior.length else 0  # all codes are drawn: nobody will ask for the cache
        keys, values = (cache[:, :n, :, :fed].clone() for cache in (buffers.keys, buffers.values))
        rows.state = Saved(buffers.codes[:n].clone(), keys, values)


def _cuts(settings: Settings) -> Settings | None:
    """Settings that are part of a graph: cuts are, temperatures are read from a buffer."""
    cuts = settings.top_k is not None or settings.top_p is not None
    return replace(settings, temperature=1.0) if cuts else None
