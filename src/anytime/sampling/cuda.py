"""The cuda engine: a whole step as one CUDA graph for each batch bucket, on copies of the weights."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime import randomness
from anytime.autoencoders.vqvae import VQVAE
from anytime.priors.transformer import Transformer
from anytime.sampling.cuda_decoder import Decoder
from anytime.sampling.cuda_step import Buffers, Step, Weights, bucket, capture
from anytime.sampling.engine import DTYPES, Draft, Rows
from anytime.sampling.noise import Settings, masked

LARGEST = 32768
"""Rows of the largest bucket; past it nothing is gained."""
MEMORY = 0.5  # of the device's, that the largest bucket's cache may take
DECODED = 4096
"""Rows decoded at a time; up to this many, in buckets, by a captured graph."""


@dataclass
class Arena:
    """The buffers of one bucket, the graphs captured on them, and whose rows are in them now."""

    buffers: Buffers
    graphs: dict[Settings | None, torch.cuda.CUDAGraph] = field(default_factory=dict)
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
        return size in self._arenas and _graph_key(draft.settings) in self._arenas[size].graphs and self._decoder.ready(size)

    @torch.no_grad()
    def warm(self, draft: Draft) -> None:
        with self._lock:
            self._captured(self._arena(len(draft.rows)), draft.settings)
            self.decode(torch.zeros(len(draft.rows), 1, dtype=torch.long, device=self.device))
            self.wait()

    def start(self, draft: Draft) -> Rows:
        return Rows(draft)

    @torch.no_grad()
    def step(self, rows: Rows) -> None:
        with self._lock:
            arena = self._arena(len(rows.draft.rows))
            graph = self._captured(arena, rows.draft.settings)
            self._enter(arena, rows)
            graph.replay()
            rows.fed += 1

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
            parts = [self._decoder(part) for part in codes.to(self.device).split(DECODED)]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

    def wait(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()

    def release(self) -> None:
        with self._lock:
            self._arenas.clear()
            self._decoder.release()
            torch.cuda.empty_cache()

    def _arena(self, rows: int) -> Arena:
        size = bucket(rows)
        if size not in self._arenas:
            self._arenas[size] = Arena(Buffers.empty(self._step.weights, size, self.device))
        return self._arenas[size]

    def _captured(self, arena: Arena, settings: Settings) -> torch.cuda.CUDAGraph:
        """The step's graph on these buffers. Whoever is in the arena is put out first: capturing runs a few steps."""
        key = _graph_key(settings)
        if key not in arena.graphs:
            self._leave(arena)
            cut = None if key is None else (lambda logits: masked(logits, key))
            arena.graphs[key] = capture(lambda: self._step(arena.buffers, cut), lambda: arena.buffers.position.zero_())
        return arena.graphs[key]

    def _enter(self, arena: Arena, rows: Rows) -> None:
        """Make the arena this work's, bringing back what it had when it left."""
        if arena.owner is not None and arena.owner() is rows:
            return
        self._leave(arena)
        n, draft, buffers = len(rows.draft.rows), rows.draft, arena.buffers
        buffers.position.fill_(rows.fed)
        buffers.given.fill_(rows.given)
        buffers.temperature.fill_(1.0 if _graph_key(draft.settings) else draft.settings.temperature)
        buffers.noise_keys[:n] = randomness.row_keys(draft.seed, draft.rows)  # on the CPU: a launch each would take longer
        if rows.given:
            buffers.codes[:n, : rows.given] = draft.codes.to(torch.int32)
        if rows.state is not None:
            buffers.codes[:n] = rows.state.codes
            buffers.keys[:, :n, :, : rows.fed] = rows.state.keys
            buffers.values[:, :n, :, : rows.fed] = rows.state.values
            rows.state = None
        arena.owner = weakref.ref(rows)

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


def _graph_key(settings: Settings) -> Settings | None:
    """Settings that are part of a graph: cuts are; the temperature alone is read from a buffer."""
    cuts = settings.top_k is not None or settings.top_p is not None
    return settings if cuts else None
