"""Engines: what computes the next code and the decode. All of them draw the same codes, up to rounding ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.priors.prior import Prior
from anytime.sampling.noise import Settings, draw


@runtime_checkable
class Engine(Protocol):
    """Steps and decodes for blocks of rows. State is a value that the caller holds; a step may reuse its buffers."""

    @property
    def name(self) -> str: ...

    @property
    def block(self) -> int:
        """Rows computed at a time: fixed and aligned to row numbers, so that bulk work gives the same bytes however divided."""

    @property
    def device(self) -> torch.device: ...

    def start(self, batch: int) -> Any:
        """The state before the first code."""

    def step(
        self,
        codes: Int[Tensor, " batch"] | None,
        state: Any,
        rows: Int[Tensor, " batch"],
        position: int,
        seed: int,
        settings: Settings,
    ) -> tuple[Int[Tensor, " batch"], Any]:
        """Take in the code before `position` (None at 0) and draw the one at `position`."""

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        """Complete samples from any prefix, on the CPU."""

    def wait(self) -> None:
        """Return when all that was asked for is done, so that clocks tell the truth."""


class EagerEngine:
    """The model as it is, on any device."""

    name = "eager"
    block = 512

    def __init__(self, prior: Prior[Any], decoder: Callable[[Tensor], Tensor], device: torch.device) -> None:
        self.prior, self.decoder, self.device = prior, decoder, device

    def start(self, batch: int) -> Any:
        return self.prior.start(batch)

    @torch.no_grad()
    def step(
        self,
        codes: Int[Tensor, " batch"] | None,
        state: Any,
        rows: Int[Tensor, " batch"],
        position: int,
        seed: int,
        settings: Settings,
    ) -> tuple[Int[Tensor, " batch"], Any]:
        logits, state = self.prior.step(codes, state)
        return draw(logits, settings, seed, rows, position), state

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        return self.decoder(codes).cpu()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
