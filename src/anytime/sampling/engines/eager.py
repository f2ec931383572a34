"""The eager engine: the model as it is, on any device. The others are measured against its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.priors.prior import Prior
from anytime.sampling.engines.base import ActiveBatch, Request
from anytime.sampling.gumbel import GumbelNoise, gumbel_argmax


@dataclass(slots=True)
class _State:
    codes: Tensor  # [n, length]; the first `count` are there
    noise: GumbelNoise
    prior: Any


class EagerEngine:
    name = "eager"
    block = 512
    microbatch = 4 * block
    """A CIFAR-10 row's cache takes 1.7 MB in float32."""

    def __init__(self, prior: Prior[Any], decoder: Callable[[Tensor], Tensor], device: torch.device) -> None:
        self.prior, self.decoder, self.device = prior, decoder, device
        self._warm_batch_sizes: set[int] = set()  # batch sizes that libraries have prepared themselves for

    def is_warm(self, request: Request) -> bool:
        return len(request.rows) in self._warm_batch_sizes

    def warm_up(self, request: Request) -> None:
        rows = self.start(replace(request, codes=request.codes[:, :0]))
        self.step(rows, min(2, self.prior.length))
        self.decode(self.codes(rows))
        self.wait()

    def start(self, request: Request) -> ActiveBatch:
        n, prefix_length = request.codes.shape
        codes = torch.zeros(n, self.prior.length, dtype=torch.long, device=self.device)
        codes[:, :prefix_length] = request.codes
        noise = GumbelNoise(request.seed, request.rows.to(self.device), self.prior.codebook_size)
        return ActiveBatch(request, state=_State(codes, noise, None))

    @torch.no_grad()
    def step(self, rows: ActiveBatch, times: int = 1) -> None:
        for _ in range(times):
            self._step_once(rows)

    def _step_once(self, rows: ActiveBatch) -> None:
        state, position = rows.state, rows.steps_done
        if position == 0:
            state.prior = self._initial_state(len(state.codes))
        previous_codes = state.codes[:, position - 1] if position else None
        logits, state.prior = self._logits(previous_codes, state.prior)
        if position >= rows.prefix_length:
            state.codes[:, position] = gumbel_argmax(logits, rows.request.settings, state.noise.at(position))
        rows.steps_done += 1

    def _initial_state(self, batch: int) -> Any:
        """The prior's state before the first code."""
        return self.prior.start(batch)

    def _logits(self, codes: Int[Tensor, " batch"] | None, state: Any) -> tuple[Float[Tensor, "batch codebook_size"], Any]:
        return self.prior.step(codes, state)

    def codes(self, rows: ActiveBatch) -> Int[Tensor, "n count"]:
        codes: Tensor = rows.state.codes[:, : rows.count]
        return codes.clone()

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        self._warm_batch_sizes.add(len(codes))
        return self.decoder(codes)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def release(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
