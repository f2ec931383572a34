"""The engine interface. In fp32, all engines sample the same codes, up to rounding ties.

An engine starts a batch (`start`), samples its next codes (`step`) and decodes codes (`decode`). The session decides when to
stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.sampling.gumbel import SamplingSettings

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CPU_DECODE_BATCH = 64
"""Rows decoded at once on a CPU: feature maps that fit into its cache take a third less time."""


@contextmanager
def fixed_mode(device: torch.device) -> Iterator[None]:
    """Compute without gradients, and as outside of the caller's `torch.inference_mode` and `torch.autocast`.

    Tensors made in inference mode could not be updated outside of it, and autocast would change the codes. Entering takes
    longer than many steps of a request, so nothing is entered that holds already.
    """
    if not (torch.is_inference_mode_enabled() or torch.is_grad_enabled() or torch.is_autocast_enabled(device.type)):
        yield
        return
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


@dataclass(frozen=True, slots=True)
class Request:
    """The codes given and everything that determines the following ones."""

    codes: Tensor  # [n, prefix], prefix of 0 or more codes
    rows: Tensor  # [n] row numbers
    seed: int
    settings: SamplingSettings
    model: str  # hash of the model


@dataclass(eq=False)  # compared by identity
class ActiveBatch:
    """A request in progress. Only the engine reads and writes `state`, which may hold the codes."""

    request: Request
    steps_done: int = 0  # of the prior
    ahead: int = 0  # codes sampled already after these steps: as many further steps cost nothing
    state: Any = None

    @property
    def prefix_length(self) -> int:
        """Codes given by the request."""
        return self.request.codes.shape[1]

    @property
    def count(self) -> int:
        """Codes available, given or sampled."""
        return max(self.prefix_length, self.steps_done)


@runtime_checkable
class Engine(Protocol):
    """What a session needs of an engine."""

    @property
    def name(self) -> str:
        """The name that `engine` selects it by."""

    @property
    def precision(self) -> str:
        """fp32 or bf16."""

    @property
    def block(self) -> int:
        """Rows computed at once. Fixed and aligned to row numbers, so that bulk work gives the same bytes in any split."""

    @property
    def microbatch(self) -> int:
        """Rows whose states are in memory at once."""

    @property
    def device(self) -> torch.device:
        """The device of codes and samples."""

    def is_warm(self, request: Request) -> bool:
        """Return whether this number of rows with these settings can run without compiling or capturing anything first."""

    def warm_up(self, request: Request) -> None:
        """Compile and capture what the request needs."""

    def start(self, request: Request) -> ActiveBatch:
        """Return a batch before its first step."""

    def step(self, batch: ActiveBatch, times: int = 1) -> None:
        """Run steps of the prior. Each feeds the previous code and samples the next unless it is given."""

    def codes(self, batch: ActiveBatch) -> Int[Tensor, "n count"]:
        """Return a copy of all codes available."""

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        """Return complete samples from a prefix of any length."""

    def wait(self) -> None:
        """Return when the device has finished, so that clocks are right."""

    def release(self) -> None:
        """Free all memory held between requests."""
