"""A session: a batch of samples generated in steps. Sampling, streaming and refining all run one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.core import storage
from anytime.core.config import from_dict
from anytime.core.errors import UserError, warn
from anytime.sampling.budget import Budget, DeadlineWarning, LatencyEstimate, should_continue
from anytime.sampling.engines.base import ActiveBatch, Engine, Request
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.sample import Sample

Clock = Callable[[], float]
Progress = Callable[[int, float], None]
"""Called after every step with the number of codes and the seconds used."""

SESSION_KIND = "session 1"
WARM_UP_TOLERANCE = 0.05
"""Fraction of a deadline that a warm-up may take without a warning."""
MAX_RESUMABLE_ROWS = 512
"""A larger sample does not keep its state, which would take gigabytes; refining it recomputes the state."""


class Session:
    """Rows of codes under one seed, extended by every `run`; each run returns a complete sample.

    Codes given by the request (a prefix, a saved session) are fed to the prior first, step by step.
    """

    def __init__(self, engine: Engine, latency: LatencyEstimate, length: int, request: Request) -> None:
        self.engine, self.latency, self.length, self.request = engine, latency, length, request
        self._lock = threading.Lock()
        parts = zip(request.rows.split(engine.block), request.codes.split(engine.block), strict=True)
        self._blocks: list[ActiveBatch] = [engine.start(replace(request, rows=rows, codes=codes)) for rows, codes in parts]

    @property
    def count(self) -> int:
        """Number of codes available."""
        return self._blocks[0].count

    @property
    def codes(self) -> Int[Tensor, "n count"]:
        """All codes available."""
        return _concat([self.engine.codes(block) for block in self._blocks])

    def run(
        self,
        budget: Budget,
        *,
        started: float | None = None,
        clock: Clock = time.perf_counter,
        progress: Progress | None = None,
    ) -> Sample:
        """Continue until the budget is used; return the complete sample generated so far."""
        if budget.codes > self.length:
            raise UserError(f"`codes` must be between 1 and {self.length}, the model's length, not {budget.codes}")
        started = clock() if started is None else started
        # A GPU runs steps asynchronously. A run that may stop at any step must not queue steps ahead.
        synchronize = budget.within is not None or budget.stop is not None or progress is not None
        with self._lock:
            if budget.within is not None:
                started += self._warm_up(clock, budget.within)
            while should_continue(budget, self.latency, self.count, clock() - started):
                self._step(clock, synchronize, 1 if synchronize else budget.codes - self._blocks[0].steps_done)
                if budget.within is not None and not self.latency.decodes:
                    self._decode(clock, self.count, synchronize)  # measures a decode, so that the deadline can be kept
                if progress is not None:
                    progress(self.count, clock() - started)
            # Another request may have continued this session; return no more than this one's codes.
            codes, data = self._decode(clock, budget.codes, synchronize)
            seconds = clock() - started
            if budget.within is not None and seconds > budget.within and self.count == 1:
                text = f"`within` of {budget.within:g} s is shorter than one step and one decode: one code, {seconds:.4f} s"
                warn(text, DeadlineWarning)
            resumable = self if codes.shape[1] == self.count < self.length and len(codes) <= MAX_RESUMABLE_ROWS else None
            request = self.request
            return Sample(data, codes, seconds, request.seed, request.rows, request.settings, request.model, resumable)

    def stream(self, budget: Budget, every: int, started: float) -> Iterator[Sample]:
        """Yield a sample after every `every` codes and one at the end of the budget."""
        while True:
            target = min(budget.codes, (self.count // every + 1) * every)
            yield self.run(replace(budget, codes=target), started=started)
            if self.count < target or self.count >= budget.codes:  # stopped, or done
                return

    def generate_codes(self, codes: int) -> Int[Tensor, "n count"]:
        """Generate the first `codes` codes of every row without decoding them."""
        with self._lock:
            for block in self._blocks:
                self.engine.step(block, codes - block.steps_done)
            generated = self.codes[:, :codes]
            self.engine.wait()
            return generated

    def _warm_up(self, clock: Clock, within: float) -> float:
        """Warm up the engine if needed; return the seconds, which do not count towards the deadline, and warn of them."""
        if self.engine.is_warm(self._blocks[0].request):
            return 0.0
        began = clock()
        self.engine.warm_up(self._blocks[0].request)
        warm = clock()
        for block in self._blocks:
            self.engine.decode(torch.zeros(len(block.request.rows), 1, dtype=torch.long, device=self.engine.device))
        self.engine.wait()
        self.latency.decodes.append(clock() - warm)
        took, rows = clock() - began, len(self.request.rows)
        if took > WARM_UP_TOLERANCE * within:
            size = "a single row" if rows == 1 else f"{rows} rows"
            text = f"the {self.engine.name} engine warmed up for {size}: {took:.3g} s before `within` began"
            warn(text, DeadlineWarning)
        return took

    def _step(self, clock: Clock, synchronize: bool, times: int) -> None:
        """Run steps of the prior in every block."""
        began = clock()
        for block in self._blocks:
            self.engine.step(block, times)
        if synchronize:
            self.engine.wait()
            self.latency.steps.append(clock() - began)

    def _decode(self, clock: Clock, max_codes: int, synchronize: bool) -> tuple[Tensor, Tensor]:
        """Return at most `max_codes` codes of each row and the samples decoded from them."""
        began = clock()  # a synchronised device is idle here; otherwise the decode is queued while steps still run
        codes = self.codes[:, :max_codes]
        data = _concat([self.engine.decode(part) for part in codes.split(self.engine.block)])
        self.engine.wait()
        if synchronize:
            self.latency.decodes.append(clock() - began)
        return codes, data

    def save(self, path: str | Path) -> None:
        """Write what another process needs to continue: codes, rows, seed, settings and the model's hash."""
        request = self.request
        facts = {"kind": SESSION_KIND, "seed": request.seed, "settings": asdict(request.settings), "model": request.model}
        storage.write_tensors(Path(path), {"codes": self.codes.cpu(), "rows": request.rows}, facts)


def _concat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def read_session(path: str | Path) -> Request:
    """Read a saved session; refuse a file that is damaged or of another version."""
    tensors, facts, _ = storage.read_tensors(Path(path))
    if facts.get("kind") != SESSION_KIND:
        raise UserError(f"{path} is not a session of this version ({SESSION_KIND}) but {facts.get('kind')!r}; save it again")
    settings = from_dict(SamplingSettings, facts["settings"], f"{path}: settings")
    return Request(tensors["codes"], tensors["rows"], int(facts["seed"]), settings, facts["model"])
