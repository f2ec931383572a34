"""Requests of more rows than are computed at once: microbatches one after another.

Without a deadline each microbatch is sampled and decoded. With one, all are sampled first and decoded last, so that no row is
decoded twice. Codes are cut before rows: each microbatch gets its share of the time left, and all rows end at the length of the
shortest. Only if not even one code of every row fits, the rows that were finished in time are returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.core.errors import out_of_memory, warn
from anytime.sampling.budget import Budget, MemoryWarning, warn_of_deadline
from anytime.sampling.engines.base import Engine, Request, fixed_mode
from anytime.sampling.latency import LatencyEstimate
from anytime.sampling.sample import Sample
from anytime.sampling.session import Clock, Progress, Session
from anytime.sampling.threads import hurrying

MIN_SHARE = 1e-9
"""Seconds of a microbatch that begins after its deadline: enough for the first code, which is always sampled."""

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Microbatches:
    """The microbatches of one request."""

    engine: Engine
    start: Callable[[Request], Session]
    """Starts the session of a microbatch."""
    request: Request
    budget: Budget
    started: float
    progress: Progress | None = None
    """Receives the number of codes done, the mean over all rows, and the seconds used."""
    clock: Clock = time.perf_counter

    def run(self) -> Sample:
        """Sample and decode; a stop returns the rows finished so far."""
        if self.budget.within is not None:
            return self._run_within(self.budget.within)
        parts: list[Sample] = []
        n, size, first = len(self.request.rows), self.engine.microbatch, 0
        while first < n and not (parts and self.is_stopped):
            started = self.clock() if parts else self.started
            part, size = self.fit(first, size, partial(self._run_part, first=first, started=started))
            parts.append(part)
            first += len(part.rows)
        return parts[0] if len(parts) == 1 else self._concat(parts)

    def _run_part(self, session: Session, *, first: int, started: float) -> Sample:
        report = self.reporter(first * self.budget.codes, len(session.request.rows), started - self.started)
        return session.run(self.budget, started=started, clock=self.clock, progress=report)

    def reporter(self, codes_before: int, rows: int, used: float) -> Progress | None:
        """Return the progress of a microbatch of `rows` rows that begins `used` seconds after the request."""
        if (report := self.progress) is None:
            return None
        n = len(self.request.rows)
        return lambda codes, seconds: report(max(1, (codes_before + rows * codes) // n), used + seconds)

    def _run_within(self, within: float) -> Sample:
        """Run one block as it is, and more rows than that block by block."""
        n, size = len(self.request.rows), self.engine.block
        if n <= size:
            try:
                session = self.start(self.request)
                return session.run(self.budget, started=self.started, clock=self.clock, progress=self.progress)
            except (RuntimeError, MemoryError) as error:
                size = self._halve(n, error)
        return DeadlineRun(self, within, size).run()

    @property
    def is_stopped(self) -> bool:
        """Whether the request was stopped."""
        return self.budget.stop is not None and self.budget.stop.is_set()

    def fit(self, first: int, size: int, work: Callable[[Session], Result]) -> tuple[Result, int]:
        """Work on `size` rows from the first one, fewer if they do not fit into memory; return the result and the size."""
        while True:
            rows, codes = self.request.rows[first : first + size], self.request.codes[first : first + size]
            try:
                return work(self.start(replace(self.request, rows=rows, codes=codes))), size
            except (RuntimeError, MemoryError) as error:
                size = self._halve(len(rows), error)

    def _halve(self, rows: int, error: RuntimeError | MemoryError) -> int:
        """Return half as many rows if the error says that they do not fit into memory."""
        if not out_of_memory(error) or rows == 1:
            raise error
        size = (rows + 1) // 2
        warn(f"{rows} rows do not fit into memory; continuing with {size} at a time", MemoryWarning)
        self.engine.release()
        return size

    def _concat(self, parts: list[Sample]) -> Sample:
        """Join microbatches at the length of the shortest, which all rows have."""
        count = min(part.codes.shape[1] for part in parts)
        with fixed_mode(self.engine.device):
            data = [p.data if p.codes.shape[1] == count else self.engine.decode(p.codes[:, :count]) for p in parts]
        codes, rows = (torch.cat(t) for t in ([p.codes[:, :count] for p in parts], [p.rows for p in parts]))
        seconds = self.clock() - self.started
        return replace(parts[0], data=torch.cat(data), codes=codes, rows=rows, seconds=seconds, session=None)


@dataclass
class DeadlineRun:
    """Microbatches with a deadline, in blocks: their codes so far and what the clock has measured."""

    work: Microbatches
    within: float
    size: int  # rows of a block
    codes: list[Tensor] = field(default_factory=list)  # of each block
    warm_up: float = 0.0  # seconds that do not count
    decodes: list[float] = field(default_factory=list)  # seconds that decoding each block takes
    latency: LatencyEstimate = field(default_factory=LatencyEstimate)  # of the last block

    @property
    def used(self) -> float:
        """Seconds since the call, without the warm-up."""
        return self.work.clock() - self.work.started - self.warm_up

    @property
    def left(self) -> float:
        """Seconds left for sampling: some are reserved for decoding the codes so far."""
        return self.within - self.used - sum(self.decodes)

    def run(self) -> Sample:
        """Sample all blocks that fit, then decode them."""
        work, n, first = self.work, len(self.work.request.rows), 0
        while first < n and (first == 0 or (self._has_time(n - first) and not work.is_stopped)):
            codes, self.size = work.fit(first, self.size, partial(self._sample_block, rows_left=n - first))
            self.codes.append(codes)
            first += len(codes)
        count = min(codes.shape[1] for codes in self.codes)
        codes = torch.cat([codes[:, :count] for codes in self.codes])
        data = self._decode(codes)
        request, seconds = work.request, self.used
        asked = len(data) if work.is_stopped else n
        warn_of_deadline(work.budget, asked, len(data), count, seconds, self.warm_up, work.engine.name)
        rows = request.rows[: len(data)].clone()
        return Sample(data, codes[: len(data)], seconds, request.seed, rows, request.settings, request.model)

    def _has_time(self, rows_left: int) -> bool:
        """Return whether another block can get its first code and be decoded."""
        step = 0.0 if self.work.request.codes.shape[1] else self.latency.steps.seconds  # given codes need no step
        return (step + self.decodes[0]) * min(self.size, rows_left) / self.size <= self.left

    def _sample_block(self, session: Session, rows_left: int) -> Int[Tensor, "n count"]:
        """Sample a block in its share of the time left, with no more codes than the blocks before it."""
        work, began, used = self.work, self.work.clock(), self.used
        share = max(MIN_SHARE, self.left * len(session.request.rows) / rows_left)
        most = min([codes.shape[1] for codes in self.codes], default=work.budget.codes)
        report = work.reporter(sum(codes.numel() for codes in self.codes), len(session.request.rows), used)
        budget = replace(work.budget, codes=most, within=share)
        self.warm_up += session.advance(budget, started=began, clock=work.clock, progress=report).warm_up
        self.latency = session.latency
        self.decodes.append(session.latency.decodes.median or max(self.decodes, default=0.0))
        return session.codes[:, :most]

    def _decode(self, codes: Int[Tensor, "n count"]) -> Float[Tensor, "n ..."]:
        """Decode block by block into one tensor, the first block always and others while there is time."""
        done, data = 0, torch.empty(0)
        with fixed_mode(self.work.engine.device), hurrying(self.latency.threads):
            for block, seconds in zip(codes.split([len(block) for block in self.codes]), self.decodes, strict=True):
                if done and self.used + seconds > self.within:
                    break
                decoded = self.work.engine.decode(block)
                if not done:
                    data = decoded.new_empty(len(codes), *decoded.shape[1:])
                data[done : done + len(block)] = decoded
                self.work.engine.wait()
                done += len(block)
        return data[:done]
