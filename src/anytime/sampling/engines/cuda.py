"""The cuda engine: a whole step as one CUDA graph per batch bucket, on copies of the weights."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.core.device import total_memory
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import DTYPES, ActiveBatch, Request
from anytime.sampling.engines.cuda_decoder import CudaDecoder
from anytime.sampling.engines.cuda_step import SMALL_BATCH, CudaStep, StepBuffers, bucket, capture, cast_prior

MAX_BUCKET = 32768
"""Rows of the largest bucket; larger ones are not faster."""
CACHE_MEMORY_FRACTION = 0.5
"""Fraction of the device's memory that the KV cache of the largest bucket may take."""
DECODE_BATCH = 4096
"""Rows decoded at once."""
GRAPH_STEPS = (16, 8, 4, 2, 1)
"""Steps per graph if nobody waits for single steps: with few rows, the pause between two graphs matters."""


def steps_per_graph(queued: int, left: int) -> int:
    """Return the number of steps in the next graph, after `queued` steps and with `left` still to run.

    Launching a graph takes almost as long as running it, and it starts only when launched completely. So the first graphs are
    short, and none is longer than half of the work queued before it.

    >>> done, strides = 0, []
    >>> while done < 32:
    ...     strides.append(steps_per_graph(done, 32 - done))
    ...     done += strides[-1]
    >>> strides
    [1, 1, 1, 1, 2, 2, 4, 4, 8, 8]
    """
    return next(steps for steps in GRAPH_STEPS if steps <= min(left, max(1, queued // 2)))


@dataclass
class Arena:
    """The buffers of one bucket, the graphs captured on them, and the batch that uses them now."""

    buffers: StepBuffers
    graphs: dict[tuple[bool, int], torch.cuda.CUDAGraph] = field(default_factory=dict)  # by whether it filters, and steps
    owner: weakref.ref[ActiveBatch] | None = None


@dataclass(frozen=True, slots=True)
class SwappedState:
    """Codes and KV cache of a batch while another one uses its arena."""

    codes: Tensor
    keys: Tensor
    values: Tensor


class CudaEngine:
    """Steps and decodes by replaying CUDA graphs."""

    name = "cuda"

    def __init__(self, prior: Transformer, autoencoder: VQVAE, device: torch.device, precision: str) -> None:
        self.prior, self.device, self.precision = prior, device, precision
        self.step_once = CudaStep(cast_prior(prior, DTYPES[precision]))
        self._decoder = CudaDecoder(autoencoder, DTYPES[precision])
        self._arenas: dict[int, Arena] = {}
        self._lock = threading.RLock()
        row_bytes = 2 * prior.config.layers * prior.length * prior.config.width * DTYPES[precision].itemsize
        rows = int(CACHE_MEMORY_FRACTION * total_memory(device)) // row_bytes
        self.block = min(MAX_BUCKET, 1 << max(0, rows.bit_length() - 1))
        self.microbatch = self.block

    def is_warm(self, request: Request) -> bool:
        """Return whether the graphs of this bucket are captured."""
        size = bucket(len(request.rows))
        return (
            size in self._arenas and (request.settings.filters, 1) in self._arenas[size].graphs and self._decoder.is_warm(size)
        )

    @torch.no_grad()
    def warm_up(self, request: Request) -> None:
        """Capture the graphs of a step and a decode."""
        with self._lock:
            self._graph(self._arena(len(request.rows)), request.settings.filters, 1)
            self.decode(torch.zeros(len(request.rows), 1, dtype=torch.long, device=self.device))
            self.wait()

    def start(self, request: Request) -> ActiveBatch:
        """Return the batch; it gets an arena with its first step."""
        return ActiveBatch(request)

    @torch.no_grad()
    def step(self, batch: ActiveBatch, times: int = 1) -> None:
        """Queue steps, with few rows several per graph."""
        with self._lock:
            arena, queued = self._arena(len(batch.request.rows)), 0
            is_small = len(arena.buffers.position) <= SMALL_BATCH
            while queued < times:
                stride = steps_per_graph(queued, times - queued) if is_small else 1
                graph = self._graph(arena, batch.request.settings.filters, stride)
                self._swap_in(arena, batch)
                graph.replay()
                batch.steps_done += stride
                queued += stride

    @torch.no_grad()
    def codes(self, batch: ActiveBatch) -> Int[Tensor, "n count"]:
        """Return a copy of all codes available."""
        with self._lock:
            arena = self._arenas.get(bucket(len(batch.request.rows)))
            if arena is not None and arena.owner is not None and arena.owner() is batch:
                return arena.buffers.codes[: len(batch.request.rows), : batch.count].long()
            if isinstance(batch.state, SwappedState):
                return batch.state.codes[:, : batch.count].long()
            return batch.request.codes.to(self.device)

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *spatial"]:
        """Decode `DECODE_BATCH` rows at a time."""
        with self._lock:
            parts = [self._decoder(part) for part in codes.to(self.device).split(DECODE_BATCH)]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

    def wait(self) -> None:
        """Synchronise the stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def release(self) -> None:
        """Free all arenas and graphs."""
        with self._lock:
            for arena in self._arenas.values():
                self._evict(arena)
            self._arenas.clear()
            self._decoder.release()
            torch.cuda.empty_cache()

    def _arena(self, rows: int) -> Arena:
        size = bucket(rows)
        if size not in self._arenas:
            try:
                buffers = StepBuffers.empty(self.step_once.prior, size, self.device)
            except torch.OutOfMemoryError:  # free the other buckets
                self.release()
                buffers = StepBuffers.empty(self.step_once.prior, size, self.device)
            self._arenas[size] = Arena(buffers)
        return self._arenas[size]

    def _graph(self, arena: Arena, filters: bool, steps: int) -> torch.cuda.CUDAGraph:
        """Return the graph of `steps` steps. Capturing runs steps on the buffers, so their owner is swapped out first."""
        if (filters, steps) not in arena.graphs:
            self._swap_out(arena)

            def work() -> None:
                for _ in range(steps):
                    self.step_once(arena.buffers, filters)

            arena.graphs[filters, steps] = capture(work, lambda: arena.buffers.position.zero_())
        return arena.graphs[filters, steps]

    def _swap_in(self, arena: Arena, batch: ActiveBatch) -> None:
        """Make the batch the arena's owner and restore its state."""
        if arena.owner is not None and arena.owner() is batch:
            return
        self._swap_out(arena)
        n, request, buffers = len(batch.request.rows), batch.request, arena.buffers
        buffers.position.fill_(batch.steps_done)
        buffers.write(slice(0, n), request, self.prior.codebook_size)
        if batch.state is not None:
            buffers.codes[:n] = batch.state.codes
            buffers.keys[:, :n, :, : batch.steps_done] = batch.state.keys
            buffers.values[:, :n, :, : batch.steps_done] = batch.state.values
            batch.state = None
        arena.owner = weakref.ref(batch)

    def _evict(self, arena: Arena) -> None:
        """Take the arena from its owner, keeping only the codes; the KV cache is recomputed from them."""
        batch = arena.owner() if arena.owner is not None else None
        arena.owner = None
        if batch is not None:
            codes = arena.buffers.codes[: len(batch.request.rows), : batch.count].long().cpu()
            batch.request, batch.steps_done, batch.state = replace(batch.request, codes=codes), 0, None

    def _swap_out(self, arena: Arena) -> None:
        """Copy the owner's state out of the arena, if the owner still exists."""
        batch = arena.owner() if arena.owner is not None else None
        arena.owner = None
        if batch is None:
            return
        n, buffers = len(batch.request.rows), arena.buffers
        steps_done = batch.steps_done if batch.steps_done < self.prior.length else 0  # a finished batch needs no KV cache
        keys, values = (cache[:, :n, :, :steps_done].clone() for cache in (buffers.keys, buffers.values))
        batch.state = SwappedState(buffers.codes[:n].clone(), keys, values)
