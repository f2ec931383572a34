"""A session: rows of codes that grow. Sampling, streaming and refining are one session run once, often, or again."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from anytime import storage
from anytime.config import from_dict
from anytime.errors import UserError
from anytime.sampling.budget import Budget, DeadlineWarning, Pace, may_go_on
from anytime.sampling.engine import Engine
from anytime.sampling.noise import Settings
from anytime.sampling.sampler import Sample

Clock = Callable[[], float]
Progress = Callable[[int, float], None]
"""Called after every step with the codes drawn and the seconds used."""

KIND = "session 1"


@dataclass(frozen=True, slots=True)
class Draft:
    """Codes that are there, and all that decides how they go on."""

    codes: Tensor  # [n, given], none or more
    rows: Tensor  # [n] row numbers
    seed: int
    settings: Settings
    model: str  # hash of the model they belong to


@dataclass
class _Block:
    """Some of the rows, and the prior's state for them once it is needed."""

    rows: Tensor
    codes: Tensor  # [rows, length]; the first `count` of the session are drawn
    state: Any = None


class Session:
    """Samples drawn a little at a time: `run` with a `Budget` as often as you like; each gives a complete sample.

    `n` rows under one seed. With codes given (a prefix, a saved file) the prior takes them in first, step by step.
    """

    def __init__(self, engine: Engine, pace: Pace, length: int, draft: Draft) -> None:
        self.engine, self.pace, self.length, self.draft = engine, pace, length, draft
        self.count = draft.codes.shape[1]  # codes that are there
        self._fed = 0  # steps the prior's state has behind it
        self._lock = threading.Lock()
        self._blocks = []
        for own, given in zip(draft.rows.split(engine.block), draft.codes.split(engine.block), strict=True):
            buffer = torch.zeros(len(own), length, dtype=torch.long, device=engine.device)
            buffer[:, : self.count] = given.to(engine.device)
            self._blocks.append(_Block(own.to(engine.device), buffer))

    @property
    def codes(self) -> Int[Tensor, "n count"]:
        """All codes so far."""
        return torch.cat([block.codes[:, : self.count] for block in self._blocks]).cpu()

    def run(
        self,
        budget: Budget,
        *,
        started: float | None = None,
        clock: Clock = time.perf_counter,
        progress: Progress | None = None,
    ) -> Sample:
        """Go on until the budget is spent; returns the complete sample made so far."""
        started = clock() if started is None else started
        with self._lock:
            while may_go_on(budget, self.pace, self.count, clock() - started):
                self._step(clock, timed=budget.within is not None)
                if budget.within is not None and not self.pace.decodes:
                    self._decode(
                        clock, self.codes
                    )  # a first decode, to know what it takes: from here on the deadline can be kept
                if progress is not None:
                    progress(self.count, clock() - started)
            # Another request may have gone further with this session; this one gets what it asked for.
            codes = self.codes[:, : budget.codes]
            data = self._decode(clock, codes)
            seconds = clock() - started
            if budget.within is not None and seconds > budget.within and self.count == 1:
                text = f"{budget.within:g} s is shorter than one step and one decode: one code, {seconds:.4f} s"
                warnings.warn(text, DeadlineWarning, stacklevel=3)
            # A cache is worth keeping only while codes are missing, and not where it would hold gigabytes.
            resumable = self if codes.shape[1] == self.count < self.length and len(self._blocks) == 1 else None
            draft = self.draft
            return Sample(data, codes, seconds, draft.seed, draft.rows, draft.settings, draft.model, resumable)

    def _step(self, clock: Clock, timed: bool) -> None:
        """One step of the prior in every row: takes in a code that is there, or draws the next."""
        began, position = clock(), self._fed
        for block in self._blocks:
            if block.state is None:
                block.state = self.engine.start(len(block.rows))
            before = block.codes[:, position - 1] if position else None
            drawn, block.state = self.engine.step(
                before, block.state, block.rows, position, self.draft.seed, self.draft.settings
            )
            if position >= self.count:
                block.codes[:, position] = drawn
        self._fed += 1
        self.count = max(self.count, self._fed)
        if timed:  # waiting for the device costs; without a deadline nobody asks
            self.engine.wait()
            self.pace.steps.append(clock() - began)

    def _decode(self, clock: Clock, codes: Int[Tensor, "n prefix"]) -> Tensor:
        began = clock()
        data = torch.cat([self.engine.decode(part) for part in codes.to(self.engine.device).split(self.engine.block)])
        self.pace.decodes.append(clock() - began)
        return data

    def save(self, path: str | Path) -> None:
        """Write what another process needs to go on: codes, rows, seed, settings and the model's hash."""
        draft = self.draft
        facts = {"kind": KIND, "seed": draft.seed, "settings": asdict(draft.settings), "model": draft.model}
        storage.write_tensors(Path(path), {"codes": self.codes, "rows": draft.rows}, facts)


def read_session(path: str | Path) -> Draft:
    """A session's file; one that is cut short or of another version is refused."""
    tensors, facts, _ = storage.read_tensors(Path(path))
    if facts.get("kind") != KIND:
        raise UserError(
            f"{path} is no session of this version ({KIND}) but {facts.get('kind')!r}; save it again with this version"
        )
    settings = from_dict(Settings, facts["settings"], f"{path}: settings")
    return Draft(tensors["codes"], tensors["rows"], int(facts["seed"]), settings, facts["model"])
