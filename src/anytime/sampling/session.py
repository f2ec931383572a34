"""A session: a batch of samples generated in steps. Sampling, streaming and refining all run one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.core import storage
from anytime.core.config import from_dict
from anytime.core.errors import UserError
from anytime.sampling.budget import Budget, should_continue, warn_of_deadline
from anytime.sampling.engines.base import ActiveBatch, Engine, Request, fixed_mode
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.latency import LatencyEstimate
from anytime.sampling.sample import Sample
from anytime.sampling.threads import adapt_to_process, hurrying

Clock = Callable[[], float]
Progress = Callable[[int, float], None]
"""Called after every step with the number of codes and the seconds used."""

SESSION_KIND = "session 1"
MAX_SAVED = 1 << 25
"""Codes of a saved session that is read: 256 MiB."""
MAX_RESUMABLE_ROWS = 512
"""A larger sample does not keep its state, which would take gigabytes; refining it recomputes the state."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What sampling up to a budget leaves: the seconds of the warm-up, and the last decode if no code came after it."""

    warm_up: float
    decoded: tuple[Tensor, Tensor] | None  # codes, data


class Session:
    """Rows of codes under one seed, extended by every `run`; each run returns a complete sample.

    Codes given by the request (a prefix, a saved session) are fed to the prior first, step by step. A copy continues on its
    own from the same codes.
    """

    def __init__(
        self,
        engine: Engine,
        latency: LatencyEstimate,
        length: int,
        request: Request,
        weights_hash: Callable[[], str] | None = None,
    ) -> None:
        self.engine, self.latency, self.length, self._weights_hash = engine, latency, length, weights_hash
        self._lock, self._process = threading.Lock(), adapt_to_process()
        with fixed_mode(engine.device):
            # Copies: the caller may change the tensors later.
            self.request = request = replace(request, rows=request.rows.clone(), codes=request.codes.clone())
            parts = zip(request.rows.split(engine.block), request.codes.split(engine.block), strict=True)
            self._blocks: list[ActiveBatch] = [engine.start(replace(request, rows=rows, codes=codes)) for rows, codes in parts]

    def __deepcopy__(self, memo: object) -> Session:
        request = replace(self.request, codes=self.codes.cpu())
        return Session(self.engine, self.latency, self.length, request, self._weights_hash)

    @property
    def count(self) -> int:
        """Number of codes available."""
        return self._blocks[0].count

    @property
    def codes(self) -> Int[Tensor, "n count"]:
        """All codes available."""
        with fixed_mode(self.engine.device):
            return _concat([self.engine.codes(block) for block in self._blocks])

    def continues(self, sample: Sample) -> bool:
        """Return whether the sample is this session's last one, unchanged: its codes, rows, seed and settings."""
        request = self.request
        return (
            self.count == sample.codes.shape[1]
            and (request.seed, request.settings, request.model) == (sample.seed, sample.settings, sample.model)
            and torch.equal(request.rows, sample.rows.cpu())
            and torch.equal(self.codes, sample.codes.to(self.engine.device))
        )

    def run(
        self,
        budget: Budget,
        *,
        started: float | None = None,
        clock: Clock = time.perf_counter,
        progress: Progress | None = None,
    ) -> Sample:
        """Continue until the budget is used; return the complete sample generated so far."""
        started = clock() if started is None else started
        request, has_deadline = self.request, budget.within is not None
        with self._running(budget):
            advance = self._advance(budget, started, clock, progress)
            # Another request may have continued this session; return no more than this one's codes.
            codes, data = advance.decoded or self._decode(clock, budget.codes, has_deadline)
            seconds, rows = clock() - started - advance.warm_up, len(request.rows)
            warn_of_deadline(budget, rows, rows, self.count, seconds, advance.warm_up, self.engine.name)
            resumable = self if codes.shape[1] == self.count < self.length and len(codes) <= MAX_RESUMABLE_ROWS else None
            return Sample(data, codes, seconds, request.seed, request.rows.clone(), request.settings, request.model, resumable)

    def advance(self, budget: Budget, *, started: float, clock: Clock, progress: Progress | None) -> Advance:
        """Continue until the budget, which has a deadline, is used, with time left for a decode."""
        with self._running(budget):
            return self._advance(budget, started, clock, progress)

    @contextmanager
    def _running(self, budget: Budget) -> Iterator[None]:
        """Check the budget and the weights, and take the lock."""
        if budget.codes > self.length:
            raise UserError(f"`codes` must be between 1 and {self.length}, the model's length, not {budget.codes}")
        if self._weights_hash is not None and self._weights_hash() != self.request.model:
            raise UserError("the weights have changed since the session began; start another session")
        if self._process != (process := adapt_to_process()):  # a fork, in which nobody would release the lock
            self._lock, self._process = threading.Lock(), process
        with self._lock, fixed_mode(self.engine.device):
            if budget.within is None:
                yield
                return
            with hurrying(self.latency.threads):
                yield

    def _advance(self, budget: Budget, started: float, clock: Clock, progress: Progress | None) -> Advance:
        # A GPU runs steps asynchronously. A run that may stop at any step must not queue steps ahead.
        has_deadline = budget.within is not None
        synchronize = has_deadline or budget.stop is not None or progress is not None
        warm_up = self._warm_up(clock) if has_deadline else 0.0
        started += warm_up
        decoded = None
        while should_continue(budget, self.latency, self.count, clock() - started):
            if has_deadline:
                self._timed_step(clock, budget.codes)
            else:
                self._step(1 if synchronize else budget.codes - self._blocks[0].steps_done, synchronize)
            is_unmeasured = has_deadline and not self.latency.decodes
            decoded = self._decode(clock, self.count, has_deadline) if is_unmeasured else None
            if progress is not None:
                progress(self.count, clock() - started)
        return Advance(warm_up, decoded)

    def stream(
        self, budget: Budget, every: int, started: float, clock: Clock = time.perf_counter
    ) -> Iterator[Sample]:  # fmt: skip
        """Yield a sample after every `every` codes and one at the end of the budget."""
        before = None
        while before is None or should_continue(budget, self.latency, before, clock() - started):
            target = min(budget.codes, (self.count // every + 1) * every)
            sample = self.run(replace(budget, codes=target), started=started, clock=clock)
            if sample.codes.shape[1] == before:  # the deadline passed meanwhile
                return
            started = clock() - sample.seconds  # a warm-up does not count
            yield sample
            before = sample.codes.shape[1]
            if before < target:  # stopped
                return

    def generate_codes(self, codes: int) -> Int[Tensor, "n count"]:
        """Generate the first `codes` codes of every row without decoding them."""
        with self._running(Budget(codes=codes)):
            for block in self._blocks:
                self.engine.step(block, codes - block.steps_done)
            generated = self.codes[:, :codes]
            self.engine.wait()
            return generated

    def _warm_up(self, clock: Clock) -> float:
        """Warm up the engine if needed; return the seconds, which do not count towards the deadline."""
        began, request, threads = clock(), self._blocks[0].request, self.latency.threads
        if self.engine.is_warm(request) and (threads is None or threads.is_measured):
            return 0.0
        self.engine.warm_up(request)
        if threads is not None and not threads.is_measured and self.length > 1:
            threads.measure(lambda: self._time_step(clock))
            torch.set_num_threads(threads.count)
        warm = clock()
        for block in self._blocks:
            self.engine.decode(torch.zeros(len(block.request.rows), 1, dtype=torch.long, device=self.engine.device))
        self.engine.wait()
        self.latency.add_decode(clock() - warm)
        return clock() - began

    def _time_step(self, clock: Clock) -> float:
        """Return the seconds of the second step of the request's rows, on a copy of the first block."""
        batch = self.engine.start(replace(self._blocks[0].request, codes=self._blocks[0].request.codes[:, :0]))
        self.engine.step(batch)
        began = clock()
        self.engine.step(batch)
        return clock() - began

    def _step(self, times: int, synchronize: bool) -> None:
        """Run steps of the prior in every block."""
        for block in self._blocks:
            self.engine.step(block, times)
        if synchronize:
            self.engine.wait()

    def _timed_step(self, clock: Clock, codes: int) -> None:
        """Run one step, and those that it made free; add its time to the estimate, which may change the number of threads."""
        began = clock()
        self._step(1, synchronize=True)
        if free := min(codes - self.count, *(block.ahead for block in self._blocks)):
            self._step(free, synchronize=False)
        if self.latency.add_step(clock() - began) and self.latency.threads is not None:
            torch.set_num_threads(self.latency.threads.count)

    def _decode(self, clock: Clock, max_codes: int, is_timed: bool) -> tuple[Tensor, Tensor]:
        """Return at most `max_codes` codes of each row and the samples decoded from them."""
        began = clock()  # if timed, the device is idle here; otherwise the decode is queued while steps still run
        codes = self.codes[:, :max_codes]
        data = _concat([self.engine.decode(part) for part in codes.split(self.engine.block)])
        self.engine.wait()
        if is_timed:
            self.latency.add_decode(clock() - began)
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
    tensors, facts, _ = storage.read_tensors(Path(path), partial(_check_header, path))
    if facts.get("kind") != SESSION_KIND:
        raise UserError(f"{path} is not a session of this version ({SESSION_KIND}) but {facts.get('kind')!r}; save it again")
    missing = [key for key in ("codes", "rows") if key not in tensors] + [
        key for key in ("seed", "settings", "model") if key not in facts
    ]
    if missing:
        raise UserError(f"{path} is not a session: it lacks {missing[0]!r}; save it again")
    if type(facts["seed"]) is not int:  # `True` is none either
        raise UserError(f"{path}: seed must be a whole number; save it again")
    settings = from_dict(SamplingSettings, facts["settings"], f"{path}: settings")
    return Request(tensors["codes"], tensors["rows"], facts["seed"], settings, str(facts["model"]))


def _check_header(path: str | Path, header: storage.Header) -> None:
    """Refuse a session of other tensors, or of more codes than one can have, before it is read."""
    if not header.tensors.keys() <= {"codes", "rows"}:
        raise UserError(f"{path} is not a session: it has other tensors than codes and rows; save it again")
    if any(math.prod(info.shape) > MAX_SAVED for info in header.tensors.values()):
        raise UserError(f"{path} has more than {MAX_SAVED:,} codes; save a session of fewer rows")
