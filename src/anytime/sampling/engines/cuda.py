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
from anytime.sampling.engines.base import DTYPES, ActiveBatch, Request
from anytime.sampling.engines.cuda_decoder import CudaDecoder
from anytime.sampling.engines.cuda_step import SMALL_BATCH, CudaStep, PriorWeights, StepBuffers, bucket, capture
from anytime.sampling.gumbel import SamplingSettings, filter_logits

MAX_BUCKET = 32768
"""Rows of the largest bucket; past it nothing is gained."""
CACHE_MEMORY_FRACTION = 0.5  # of the device's, that the largest bucket's cache may take
DECODE_BATCH = 4096
"""Rows decoded at a time."""
GRAPH_STEPS = (16, 8, 4, 2, 1)
"""Steps in one graph where nobody watches: between two graphs a card pauses, which few rows feel."""


def steps_per_graph(queued: int, left: int) -> int:
    """Steps in the next graph when so many have been asked for and so many are left.

    Asking for a graph takes almost as long as running it, and it runs when all of it has been asked for. So the first ones are
    short, and none is longer than half of what the card has had to do before it.

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
    """The buffers of one bucket, the graphs captured on them, and whose rows are in them now."""

    buffers: StepBuffers
    graphs: dict[tuple[SamplingSettings | None, int], torch.cuda.CUDAGraph] = field(default_factory=dict)  # by cuts and steps
    owner: weakref.ref[ActiveBatch] | None = None


@dataclass(frozen=True, slots=True)
class SwappedState:
    """Rows that had to leave their arena to others."""

    codes: Tensor
    keys: Tensor
    values: Tensor


class CudaEngine:
    name = "cuda"

    def __init__(self, prior: Transformer, autoencoder: VQVAE, device: torch.device, precision: str) -> None:
        self.prior, self.device, self.precision = prior, device, precision
        self._step = CudaStep(PriorWeights.of(prior, DTYPES[precision]))
        self._decoder = CudaDecoder(autoencoder, DTYPES[precision])
        self._arenas: dict[int, Arena] = {}
        self._lock = threading.RLock()
        row_bytes = 2 * prior.config.layers * prior.length * prior.config.width * DTYPES[precision].itemsize
        room = int(CACHE_MEMORY_FRACTION * torch.cuda.get_device_properties(device).total_memory) // row_bytes
        self.block = min(MAX_BUCKET, 1 << max(0, room.bit_length() - 1))
        self.microbatch = self.block

    def is_warm(self, request: Request) -> bool:
        size = bucket(len(request.rows))
        return (
            size in self._arenas
            and (_filter_settings(request.settings), 1) in self._arenas[size].graphs
            and self._decoder.is_warm(size)
        )

    @torch.no_grad()
    def warm_up(self, request: Request) -> None:
        with self._lock:
            self._graph(self._arena(len(request.rows)), request.settings, 1)
            self.decode(torch.zeros(len(request.rows), 1, dtype=torch.long, device=self.device))
            self.wait()

    def start(self, request: Request) -> ActiveBatch:
        return ActiveBatch(request)

    @torch.no_grad()
    def step(self, rows: ActiveBatch, times: int = 1) -> None:
        with self._lock:
            arena, queued = self._arena(len(rows.request.rows)), 0
            is_small = len(arena.buffers.position) <= SMALL_BATCH
            while queued < times:
                stride = steps_per_graph(queued, times - queued) if is_small else 1
                graph = self._graph(arena, rows.request.settings, stride)
                self._swap_in(arena, rows)
                graph.replay()
                rows.steps_done += stride
                queued += stride

    @torch.no_grad()
    def codes(self, rows: ActiveBatch) -> Int[Tensor, "n count"]:
        with self._lock:
            arena = self._arenas.get(bucket(len(rows.request.rows)))
            if arena is not None and arena.owner is not None and arena.owner() is rows:
                return arena.buffers.codes[: len(rows.request.rows), : rows.count].long()
            if isinstance(rows.state, SwappedState):
                return rows.state.codes[:, : rows.count].long()
            return rows.request.codes.to(self.device)

    @torch.no_grad()
    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *place"]:
        with self._lock:
            codes = codes.to(self.device)
            return (
                self._decoder(codes)
                if len(codes) <= DECODE_BATCH
                else torch.cat([self._decoder(c) for c in codes.split(DECODE_BATCH)])
            )

    def wait(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()

    def release(self) -> None:
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
                buffers = StepBuffers.empty(self._step.weights, size, self.device)
            except torch.OutOfMemoryError:  # other buckets may hold what is missing
                self.release()
                buffers = StepBuffers.empty(self._step.weights, size, self.device)
            self._arenas[size] = Arena(buffers)
        return self._arenas[size]

    def _graph(self, arena: Arena, settings: SamplingSettings, steps: int) -> torch.cuda.CUDAGraph:
        """The graph of so many steps on these buffers. Whoever is in the arena is put out first: capturing runs some steps."""
        filtering = _filter_settings(settings)
        if (filtering, steps) not in arena.graphs:
            self._swap_out(arena)
            logits_filter = None if filtering is None else (lambda logits: filter_logits(logits, filtering))

            def work() -> None:
                for _ in range(steps):
                    self._step(arena.buffers, logits_filter)

            arena.graphs[filtering, steps] = capture(work, lambda: arena.buffers.position.zero_())
        return arena.graphs[filtering, steps]

    def _swap_in(self, arena: Arena, rows: ActiveBatch) -> None:
        """Make the arena this work's, bringing back what it had when it left."""
        if arena.owner is not None and arena.owner() is rows:
            return
        self._swap_out(arena)
        n, request, buffers = len(rows.request.rows), rows.request, arena.buffers
        buffers.position.fill_(rows.steps_done)
        buffers.temperature.fill_(request.settings.temperature)
        request_buffer = torch.tensor([*random.key(request.seed), rows.prefix_length], dtype=torch.int32)
        buffers.request_buffer[: 3 + n] = torch.cat([request_buffer, request.rows.to("cpu", torch.int32)])
        if rows.prefix_length:
            buffers.codes[:n, : rows.prefix_length] = request.codes.to(torch.int32)
        if rows.state is not None:
            buffers.codes[:n] = rows.state.codes
            buffers.keys[:, :n, :, : rows.steps_done] = rows.state.keys
            buffers.values[:, :n, :, : rows.steps_done] = rows.state.values
            rows.state = None
        arena.owner = weakref.ref(rows)

    def _evict(self, arena: Arena) -> None:
        """Take the arena from its rows, keeping their codes only, as if given; the cache is then built from them anew."""
        rows = arena.owner() if arena.owner is not None else None
        arena.owner = None
        if rows is not None:
            codes = arena.buffers.codes[: len(rows.request.rows), : rows.count].long().cpu()
            rows.request, rows.steps_done, rows.state = replace(rows.request, codes=codes), 0, None

    def _swap_out(self, arena: Arena) -> None:
        """Put the arena's rows aside, if anybody still holds them."""
        rows = arena.owner() if arena.owner is not None else None
        arena.owner = None
        if rows is None:
            return
        n, buffers = len(rows.request.rows), arena.buffers
        steps_done = (
            rows.steps_done if rows.steps_done < self.prior.length else 0
        )  # all codes are drawn: nobody will ask for the cache
        keys, values = (cache[:, :n, :, :steps_done].clone() for cache in (buffers.keys, buffers.values))
        rows.state = SwappedState(buffers.codes[:n].clone(), keys, values)


def _filter_settings(settings: SamplingSettings) -> SamplingSettings | None:
    """Settings that are part of a graph: cuts are, the temperature is read from a buffer."""
    filtering = settings.top_k is not None or settings.top_p is not None
    return replace(settings, temperature=1.0) if filtering else None
