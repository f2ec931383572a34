"""A session: rows of codes that grow. Sampling, streaming and refining are one session run once, often, or again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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
"""Called after every step with the codes drawn and the seconds used."""

SESSION_KIND = "session 1"
WARM_UP_TOLERANCE = 0.05  # of a deadline: warming up for less need not be said
MAX_RESUMABLE_ROWS = 512
"""A sample of more rows does not hold on to their state, which would be gigabytes; refining it rebuilds the state."""


class Session:
    """Samples drawn a little at a time: `run` with a `Budget` as often as you like; each gives a complete sample.

    `n` rows under one seed. With codes given (a prefix, a saved file) the prior takes them in first, step by step.
    """

    def __init__(self, engine: Engine, latency: LatencyEstimate, length: int, request: Request) -> None:
        self.engine, self.latency, self.length, self.request = engine, latency, length, request
        self._lock = threading.Lock()
        parts = zip(request.rows.split(engine.block), request.codes.split(engine.block), strict=True)
        self._blocks: list[ActiveBatch] = [engine.start(replace(request, rows=rows, codes=codes)) for rows, codes in parts]

    @property
    def count(self) -> int:
        """Codes that are there."""
        return self._blocks[0].count

    @property
    def codes(self) -> Int[Tensor, "n count"]:
        """All codes so far."""
        return _concat([self.engine.codes(block) for block in self._blocks])

    def run(
        self,
        budget: Budget,
        *,
        started: float | None = None,
        clock: Clock = time.perf_counter,
        progress: Progress | None = None,
    ) -> Sample:
        """Go on until the budget is spent; returns the complete sample made so far."""
        if budget.codes > self.length:
            raise UserError(f"--codes must be between 1 and {self.length}, the model's length, not {budget.codes}")
        started = clock() if started is None else started
        # Steps are only asked for, and done in the background; whoever may stop in the middle must not ask too far ahead.
        synchronize = budget.within is not None or budget.stop is not None or progress is not None
        with self._lock:
            if budget.within is not None:
                started += self._warm_up(clock, budget.within)
            while should_continue(budget, self.latency, self.count, clock() - started):
                self._step(clock, synchronize, 1 if synchronize else budget.codes - self._blocks[0].steps_done)
                if budget.within is not None and not self.latency.decodes:
                    self._decode(clock, self.count, synchronize)  # to know what it takes: from here on deadlines can be kept
                if progress is not None:
                    progress(self.count, clock() - started)
            # Another request may have gone further with this session; this one gets what it asked for.
            codes, data = self._decode(clock, budget.codes, synchronize)
            seconds = clock() - started
            if budget.within is not None and seconds > budget.within and self.count == 1:
                text = f"--within of {budget.within:g} s is shorter than one step and one decode: one code, {seconds:.4f} s"
                warn(text, DeadlineWarning)
            resumable = self if codes.shape[1] == self.count < self.length and len(codes) <= MAX_RESUMABLE_ROWS else None
            request = self.request
            return Sample(data, codes, seconds, request.seed, request.rows, request.settings, request.model, resumable)

    def draw(self, codes: int) -> Int[Tensor, "n count"]:
        """So many codes of every row, and no sample of them: a request without its decode."""
        with self._lock:
            for block in self._blocks:
                self.engine.step(block, codes - block.steps_done)
            codes_so_far = self.codes[:, :codes]
            self.engine.wait()
            return codes_so_far

    def _warm_up(self, clock: Clock, within: float) -> float:
        """Seconds that a cold engine needed before the deadline's clock may run; said, as the caller waits for them too."""
        if self.engine.is_warm(self._blocks[0].request):
            return 0.0
        began = clock()
        self.engine.warm_up(self._blocks[0].request)
        warm_up = clock()
        for block in self._blocks:
            self.engine.decode(torch.zeros(len(block.request.rows), 1, dtype=torch.long, device=self.engine.device))
        self.engine.wait()
        self.latency.decodes.append(clock() - warm_up)  # a rehearsal
        took, rows = clock() - began, len(self.request.rows)
        if took > WARM_UP_TOLERANCE * within:
            batch = "a single row" if rows == 1 else f"{rows} rows"
            text = f"the {self.engine.name} engine was cold for {batch}: {took:.3g} s came before --within began"
            warn(text, DeadlineWarning)
        return took

    def _step(self, clock: Clock, synchronize: bool, times: int) -> None:
        """Steps of the prior in every row, each of which takes in a code that is there, or draws the next."""
        began = clock()
        for block in self._blocks:
            self.engine.step(block, times)
        if synchronize:
            self.engine.wait()
            self.latency.steps.append(clock() - began)

    def _decode(self, clock: Clock, max_codes: int, synchronize: bool) -> tuple[Tensor, Tensor]:
        """The codes, at most so many of each row, and the samples made of them: what a deadline must leave time for."""
        began = clock()  # a watched device has nothing left to do by now; an unwatched one is given the decode while it draws
        codes = self.codes[:, :max_codes]
        data = _concat([self.engine.decode(part) for part in codes.split(self.engine.block)])
        self.engine.wait()
        if synchronize:
            self.latency.decodes.append(clock() - began)
        return codes, data

    def save(self, path: str | Path) -> None:
        """Write what another process needs to go on: codes, rows, seed, settings and the model's hash."""
        request = self.request
        facts = {"kind": SESSION_KIND, "seed": request.seed, "settings": asdict(request.settings), "model": request.model}
        storage.write_tensors(Path(path), {"codes": self.codes.cpu(), "rows": request.rows}, facts)


def _concat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def read_session(path: str | Path) -> Request:
    """A session's file; one that is cut short or of another version is refused."""
    tensors, facts, _ = storage.read_tensors(Path(path))
    if facts.get("kind") != SESSION_KIND:
        raise UserError(
            f"{path} is no session of this version ({SESSION_KIND}) but {facts.get('kind')!r}; save it again with this version"
        )
    settings = from_dict(SamplingSettings, facts["settings"], f"{path}: settings")
    return Request(tensors["codes"], tensors["rows"], int(facts["seed"]), settings, facts["model"])
