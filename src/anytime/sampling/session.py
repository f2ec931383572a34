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
from anytime.sampling.budget import Budget, DeadlineWarning, Pace, may_go_on
from anytime.sampling.engines.base import Draft, Engine, Rows
from anytime.sampling.gumbel import Settings
from anytime.sampling.sample import Sample

Clock = Callable[[], float]
Progress = Callable[[int, float], None]
"""Called after every step with the codes drawn and the seconds used."""

KIND = "session 1"
NEGLIGIBLE = 0.05  # of a deadline: warming up for less need not be said
RESUMABLE = 512
"""A sample of more rows does not hold on to their state, which would be gigabytes; refining it rebuilds the state."""


class Session:
    """Samples drawn a little at a time: `run` with a `Budget` as often as you like; each gives a complete sample.

    `n` rows under one seed. With codes given (a prefix, a saved file) the prior takes them in first, step by step.
    """

    def __init__(self, engine: Engine, pace: Pace, length: int, draft: Draft) -> None:
        self.engine, self.pace, self.length, self.draft = engine, pace, length, draft
        self._lock = threading.Lock()
        parts = zip(draft.rows.split(engine.block), draft.codes.split(engine.block), strict=True)
        self._blocks: list[Rows] = [engine.start(replace(draft, rows=rows, codes=codes)) for rows, codes in parts]

    @property
    def count(self) -> int:
        """Codes that are there."""
        return self._blocks[0].count

    @property
    def codes(self) -> Int[Tensor, "n count"]:
        """All codes so far."""
        return _joined([self.engine.codes(block) for block in self._blocks])

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
        watched = budget.within is not None or budget.stop is not None or progress is not None
        with self._lock:
            if budget.within is not None:
                started += self._warm(clock, budget.within)
            while may_go_on(budget, self.pace, self.count, clock() - started):
                self._step(clock, watched, 1 if watched else budget.codes - self._blocks[0].fed)
                if budget.within is not None and not self.pace.decodes:
                    self._decode(clock, self.count, watched)  # to know what it takes: from here on deadlines can be kept
                if progress is not None:
                    progress(self.count, clock() - started)
            # Another request may have gone further with this session; this one gets what it asked for.
            codes, data = self._decode(clock, budget.codes, watched)
            seconds = clock() - started
            if budget.within is not None and seconds > budget.within and self.count == 1:
                text = f"--within of {budget.within:g} s is shorter than one step and one decode: one code, {seconds:.4f} s"
                warn(text, DeadlineWarning)
            resumable = self if codes.shape[1] == self.count < self.length and len(codes) <= RESUMABLE else None
            draft = self.draft
            return Sample(data, codes, seconds, draft.seed, draft.rows, draft.settings, draft.model, resumable)

    def draw(self, codes: int) -> Int[Tensor, "n count"]:
        """So many codes of every row, and no sample of them: a request without its decode."""
        with self._lock:
            for block in self._blocks:
                self.engine.step(block, codes - block.fed)
            drawn = self.codes[:, :codes]
            self.engine.wait()
            return drawn

    def _warm(self, clock: Clock, within: float) -> float:
        """Seconds that a cold engine needed before the deadline's clock may run; said, as the caller waits for them too."""
        if self.engine.ready(self._blocks[0].draft):
            return 0.0
        began = clock()
        self.engine.warm(self._blocks[0].draft)
        warm = clock()
        for block in self._blocks:
            self.engine.decode(torch.zeros(len(block.draft.rows), 1, dtype=torch.long, device=self.engine.device))
        self.engine.wait()
        self.pace.decodes.append(clock() - warm)  # a rehearsal
        took, rows = clock() - began, len(self.draft.rows)
        if took > NEGLIGIBLE * within:
            batch = "a single row" if rows == 1 else f"{rows} rows"
            text = f"the {self.engine.name} engine was cold for {batch}: {took:.3g} s came before --within began"
            warn(text, DeadlineWarning)
        return took

    def _step(self, clock: Clock, watched: bool, times: int) -> None:
        """Steps of the prior in every row, each of which takes in a code that is there, or draws the next."""
        began = clock()
        for block in self._blocks:
            self.engine.step(block, times)
        if watched:
            self.engine.wait()
            self.pace.steps.append(clock() - began)

    def _decode(self, clock: Clock, most: int, watched: bool) -> tuple[Tensor, Tensor]:
        """The codes, at most so many of each row, and the samples made of them: what a deadline must leave time for."""
        began = clock()  # a watched device has nothing left to do by now; an unwatched one is given the decode while it draws
        codes = self.codes[:, :most]
        data = _joined([self.engine.decode(part) for part in codes.split(self.engine.block)])
        self.engine.wait()
        if watched:
            self.pace.decodes.append(clock() - began)
        return codes, data

    def save(self, path: str | Path) -> None:
        """Write what another process needs to go on: codes, rows, seed, settings and the model's hash."""
        draft = self.draft
        facts = {"kind": KIND, "seed": draft.seed, "settings": asdict(draft.settings), "model": draft.model}
        storage.write_tensors(Path(path), {"codes": self.codes.cpu(), "rows": draft.rows}, facts)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def read_session(path: str | Path) -> Draft:
    """A session's file; one that is cut short or of another version is refused."""
    tensors, facts, _ = storage.read_tensors(Path(path))
    if facts.get("kind") != KIND:
        raise UserError(
            f"{path} is no session of this version ({KIND}) but {facts.get('kind')!r}; save it again with this version"
        )
    settings = from_dict(Settings, facts["settings"], f"{path}: settings")
    return Draft(tensors["codes"], tensors["rows"], int(facts["seed"]), settings, facts["model"])
