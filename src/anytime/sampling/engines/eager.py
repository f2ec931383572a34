"""The eager engine: the model as it is, on any device. The others are measured against its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.priors.prior import Prior
from anytime.sampling.engines.base import Draft, Rows
from anytime.sampling.gumbel import Noise, draw


@dataclass(slots=True)
class _State:
    codes: Tensor  # [n, length]; the first `count` are there
    noise: Noise
    prior: Any


class EagerEngine:
    name = "eager"
    block = 512
    wave = 4 * block
    """A CIFAR-10 row's cache takes 1.7 MB in float32."""

    def __init__(self, prior: Prior[Any], decoder: Callable[[Tensor], Tensor], device: torch.device) -> None:
        self.prior, self.decoder, self.device = prior, decoder, device
        self._met: set[int] = set()  # batch sizes that libraries have prepared themselves for

    def ready(self, draft: Draft) -> bool:
        return len(draft.rows) in self._met

    def warm(self, draft: Draft) -> None:
        rows = self.start(replace(draft, codes=draft.codes[:, :0]))
        self.step(rows, min(2, self.prior.length))
        self.decode(self.codes(rows))
        self.wait()

    def start(self, draft: Draft) -> Rows:
        n, given = draft.codes.shape
        codes = torch.zeros(n, self.prior.length, dtype=torch.long, device=self.device)
        codes[:, :given] = draft.codes
        noise = Noise(draft.seed, draft.rows.to(self.device), self.prior.codebook_size)
        return Rows(draft, state=_State(codes, noise, None))

    @torch.no_grad()
    def step(self, rows: Rows, times: int = 1) -> None:
        for _ in range(times):
            self._one(rows)

    def _one(self, rows: Rows) -> None:
        state, position = rows.state, rows.fed
        if position == 0:
            state.prior = self._empty(len(state.codes))
        before = state.codes[:, position - 1] if position else None
        logits, state.prior = self._logits(before, state.prior)
        if position >= rows.given:
            state.codes[:, position] = draw(logits, rows.draft.settings.at(position), state.noise.at(position))
        rows.fed += 1

    def _empty(self, batch: int) -> Any:
        """The prior's state before the first code."""
        return self.prior.start(batch)

    def _logits(self, codes: Int[Tensor, " batch"] | None, state: Any) -> tuple[Float[Tensor, "batch codebook_size"], Any]:
        return self.prior.step(codes, state)

    def codes(self, rows: Rows) -> Int[Tensor, "n count"]:
        codes: Tensor = rows.state.codes[:, : rows.count]
        return codes.clone()

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        self._met.add(len(codes))
        return self.decoder(codes)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def release(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
