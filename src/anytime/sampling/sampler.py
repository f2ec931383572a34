"""The sampler: chooses and builds the engine, keeps its latency estimates and runs requests in microbatches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.core.errors import UserError, out_of_memory, warn
from anytime.priors import PriorNetwork
from anytime.sampling.budget import Budget, MemoryWarning
from anytime.sampling.engines.base import Engine, Request
from anytime.sampling.engines.registry import build_engine
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.latency import LatencyEstimate
from anytime.sampling.sample import Sample
from anytime.sampling.session import Progress, Session
from anytime.sampling.threads import ThreadChoice

MAX_ROWS = 1 << 31  # row numbers are hashed as int32


class Sampler:
    """Samples from a prior and decodes. Build it once; `use` changes the engine, `reset` follows a change of weights."""

    def __init__(self, prior: PriorNetwork, autoencoder: VQVAE, weights_hash: Callable[[], str]) -> None:
        self.prior, self.autoencoder = prior, autoencoder
        self.latencies: dict[int, LatencyEstimate] = {}  # of this engine, by batch size
        self._weights_hash = weights_hash
        self._choice: tuple[str | None, str | None] = ("eager", None)
        self._engine: Engine | None = None  # built on first use
        self._hash: str | None = None  # of the engine's weights: hashing takes longer than sampling

    @property
    def engine(self) -> Engine:
        """The engine, built for the device that the weights are on."""
        if self._engine is None or self._engine.device != self.autoencoder.device:
            self.prior.eval()
            self.autoencoder.eval()
            self.latencies = {}
            self._engine = build_engine(*self._choice, self.prior, self.autoencoder)
        return self._engine

    def use(self, engine: str | None, precision: str | None) -> None:
        """Choose another engine; None is the fastest for the device."""
        self._choice = (engine, precision)
        self.reset()

    def reset(self) -> None:
        """Forget the engine, which may hold copies of the weights."""
        self._engine = self._hash = None

    def request(
        self, n: int, seed: int, settings: SamplingSettings, prefix: Int[Tensor, "given k"] | None, max_codes: int
    ) -> Request:
        """Return a checked request for `n` rows that start with the prefix."""
        if n < 1:
            raise UserError(f"`n` must be at least 1, not {n}")
        if n >= MAX_ROWS:
            raise UserError(f"`n` must be below {MAX_ROWS}, not {n}")
        if not 0 <= seed < 1 << 63:
            raise UserError(f"`seed` must be between 0 and 2^63 - 1, not {seed}")
        if prefix is None:
            prefix = torch.empty(1, 0, dtype=torch.long)
        self.check_codes(prefix, "`prefix`")
        if len(prefix) not in (1, n):
            raise UserError(f"`prefix` must have 1 row or {n} rows, one for each sample, not {len(prefix)}")
        if prefix.shape[1] > max_codes:
            raise UserError(f"`prefix` has {prefix.shape[1]} codes, more than the {max_codes} requested; raise `codes`")
        self._hash = self._hash or self._weights_hash()
        return Request(prefix.cpu().long().expand(n, -1), torch.arange(n), seed, settings, self._hash)

    def check_codes(self, codes: Int[Tensor, "batch prefix"], name: str) -> None:
        """Refuse codes of a wrong shape or range."""
        length, codebook_size = self.prior.length, self.prior.codebook_size
        if codes.ndim != 2 or codes.shape[1] > length:
            raise UserError(f"{name} must be [batch, up to {length}], not {tuple(codes.shape)}")
        if codes.numel() and not (int(codes.min()) >= 0 and int(codes.max()) < codebook_size):
            bad = int(codes[(codes < 0) | (codes >= codebook_size)][0])
            raise UserError(f"{name} has the code {bad}; this model's codes run from 0 to {codebook_size - 1}")

    def session(self, request: Request) -> Session:
        """Return a session on the engine."""
        return Session(self.engine, self.latency(len(request.rows)), self.prior.length, request)

    def latency(self, rows: int) -> LatencyEstimate:
        """Return the latency estimate of a batch size, with the choice of threads on a CPU."""
        engine = self.engine
        if rows not in self.latencies:
            chooses_threads = engine.name == "eager" and engine.device.type == "cpu"
            self.latencies[rows] = LatencyEstimate(ThreadChoice() if chooses_threads else None)
        return self.latencies[rows]

    def run(self, request: Request, budget: Budget, started: float, progress: Progress | None) -> Sample:
        """Run a request in microbatches that fit into memory; each gets its share of the time left."""
        parts: list[Sample] = []
        n, size, first = len(request.rows), self.engine.microbatch, 0
        while first < n and not (parts and budget.stop is not None and budget.stop.is_set()):
            microbatch = replace(request, rows=request.rows[first : first + size], codes=request.codes[first : first + size])
            began, within = time.perf_counter() if parts else started, budget.within
            if within is not None and n > size:
                used = sum(part.seconds for part in parts)  # not the clock: a warm-up does not count towards the deadline
                within = max(1e-9, (within - used) * len(microbatch.rows) / (n - first))
            try:
                parts.append(self.session(microbatch).run(replace(budget, within=within), started=began, progress=progress))
                first += size
            except RuntimeError as error:
                if not out_of_memory(error) or len(microbatch.rows) == 1:
                    raise
                size = (len(microbatch.rows) + 1) // 2
                warn(f"{len(microbatch.rows)} rows do not fit into memory; continuing with {size} at a time", MemoryWarning)
                self.engine.release()
        return parts[0] if len(parts) == 1 else self._concat(parts, time.perf_counter() - started)

    def _concat(self, parts: list[Sample], seconds: float) -> Sample:
        """Join microbatches at the length of the shortest, which all rows have."""
        count = min(part.codes.shape[1] for part in parts)
        data = [p.data if p.codes.shape[1] == count else self.engine.decode(p.codes[:, :count]) for p in parts]
        codes, rows = (torch.cat(t) for t in ([p.codes[:, :count] for p in parts], [p.rows for p in parts]))
        return replace(parts[0], data=torch.cat(data), codes=codes, rows=rows, seconds=seconds, session=None)
