"""The eager engine: the model's own modules, on any device. Other engines are tested against its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.priors.prior import Prior
from anytime.sampling.engines.base import CPU_DECODE_BATCH, ActiveBatch, Request
from anytime.sampling.gumbel import GumbelNoise, gumbel_argmax

BLOCK = 512
"""Rows computed at once."""


def decode_in_blocks(autoencoder: VQVAE, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
    """Decode a fixed number of rows at a time."""
    device = autoencoder.device
    rows = CPU_DECODE_BATCH if device.type == "cpu" else BLOCK
    return torch.cat([autoencoder.decode(part.to(device)) for part in codes.split(rows)])


@dataclass(slots=True)
class _State:
    codes: Tensor  # [n, length], of which the first `count` are available
    noise: GumbelNoise
    prior: Any


class EagerEngine:
    """Runs the prior and a decoder as they are."""

    name = "eager"
    precision = "fp32"
    block = BLOCK
    microbatch = 4 * BLOCK  # a CIFAR-10 row's KV cache takes 1.7 MB in float32

    def __init__(self, prior: Prior[Any], decoder: Callable[[Tensor], Tensor], device: torch.device) -> None:
        self.prior, self.decoder, self.device = prior, decoder, device
        self._warm_batch_sizes: set[int] = set()  # that libraries have been initialised for

    def is_warm(self, request: Request) -> bool:
        """Return whether this batch size was decoded before."""
        return len(request.rows) in self._warm_batch_sizes

    def warm_up(self, request: Request) -> None:
        """Run two steps and a decode."""
        batch = self.start(replace(request, codes=request.codes[:, :0]))
        self.step(batch, min(2, self.prior.length))
        self.decode(self.codes(batch))
        self.wait()

    def start(self, request: Request) -> ActiveBatch:
        """Allocate the codes and the noise."""
        n, prefix_length = request.codes.shape
        codes = torch.zeros(n, self.prior.length, dtype=torch.long, device=self.device)
        codes[:, :prefix_length] = request.codes
        noise = GumbelNoise(request.seed, request.rows.to(self.device), self.prior.codebook_size)
        return ActiveBatch(request, state=_State(codes, noise, None))

    @torch.no_grad()
    def step(self, batch: ActiveBatch, times: int = 1) -> None:
        """Run steps of the prior one by one."""
        for _ in range(times):
            self._step_once(batch)

    def _step_once(self, batch: ActiveBatch) -> None:
        state, position = batch.state, batch.steps_done
        if position == 0:
            state.prior = self._initial_state(len(state.codes))
        previous_codes = state.codes[:, position - 1] if position else None
        logits, state.prior = self._logits(previous_codes, state.prior)
        if position >= batch.prefix_length:
            state.codes[:, position] = gumbel_argmax(logits, batch.request.settings, state.noise.at(position))
        batch.steps_done += 1

    def _initial_state(self, batch: int) -> Any:
        return self.prior.start(batch)

    def _logits(self, codes: Int[Tensor, " batch"] | None, state: Any) -> tuple[Float[Tensor, "batch codebook_size"], Any]:
        return self.prior.step(codes, state)

    def codes(self, batch: ActiveBatch) -> Int[Tensor, "n count"]:
        """Return a copy of all codes available."""
        codes: Tensor = batch.state.codes[:, : batch.count]
        return codes.clone()

    def decode(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch ..."]:
        """Decode with the decoder given."""
        self._warm_batch_sizes.add(len(codes))
        return self.decoder(codes)

    def wait(self) -> None:
        """Synchronise a GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def release(self) -> None:
        """Return a GPU's cached memory."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
