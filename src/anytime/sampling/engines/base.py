"""Engines: what computes the next code and the decode. All of them draw the same codes, up to rounding ties.

An engine is given rows to work on (`start`), draws the next code of each (`step`) and turns codes into samples (`decode`).
Who stops when, and why, is none of its business: that is the session's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.sampling.gumbel import SamplingSettings

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CPU_DECODE_BATCH = 64  # on a CPU: feature maps that stay in the cache take a third less time


@dataclass(frozen=True, slots=True)
class Request:
    """Codes that are there, and all that decides how they go on."""

    codes: Tensor  # [n, given], none or more
    rows: Tensor  # [n] row numbers
    seed: int
    settings: SamplingSettings
    model: str  # hash of the model they belong to


@dataclass(eq=False)  # two of them are never the same work
class ActiveBatch:
    """A draft that an engine works on. The engine alone touches `state`; it may keep the codes there, too."""

    request: Request
    steps_done: int = 0  # steps the prior's state has behind it
    state: Any = None

    @property
    def prefix_length(self) -> int:
        """Codes that were there from the beginning: taken in, not drawn."""
        return self.request.codes.shape[1]

    @property
    def count(self) -> int:
        """Codes that are there."""
        return max(self.prefix_length, self.steps_done)


@runtime_checkable
class Engine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def block(self) -> int:
        """Rows computed at a time: fixed and aligned to row numbers, so that bulk work gives the same bytes however divided."""

    @property
    def microbatch(self) -> int:
        """Rows whose states are held at once."""

    @property
    def device(self) -> torch.device: ...

    def is_warm(self, request: Request) -> bool:
        """Whether this many rows with these settings can be drawn without first compiling or capturing anything."""

    def warm_up(self, request: Request) -> None:
        """Make it so."""

    def start(self, request: Request) -> ActiveBatch:
        """Rows before their first step."""

    def step(self, rows: ActiveBatch, times: int = 1) -> None:
        """Steps of the prior, each of which takes in the code before and draws the next unless it is given."""

    def codes(self, rows: ActiveBatch) -> Int[Tensor, "n count"]:
        """All codes that are there; a copy."""

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        """Complete samples from any prefix."""

    def wait(self) -> None:
        """Return when all that was asked for is done, so that clocks tell the truth."""

    def release(self) -> None:
        """Give back all memory held between requests."""
