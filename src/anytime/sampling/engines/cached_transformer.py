"""A Transformer's steps for an engine of its own: the KV cache is written in place, and several codes may be fed at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.priors.transformer import KVCache, Transformer


class CachedTransformer(ABC):
    """A prior with the weights of a Transformer. Engines differ in how they compute `logits`."""

    def __init__(self, prior: Transformer) -> None:
        self.length, self.codebook_size, self._prior = prior.length, prior.codebook_size, prior
        # The first step is the same in every row of every request.
        first = self.start(1)
        self._first_logits = self.logits(torch.tensor([[self.codebook_size]], device="cpu"), first)[:, 0]
        self._first_keys, self._first_values = (cache[:, :, :, :1].clone() for cache in (first.keys, first.values))

    def __call__(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix codebook_size"]:
        """Return the logits of every code given those before it, from the prior itself."""
        logits: Tensor = self._prior(codes)
        return logits

    def start(self, batch: int) -> KVCache:
        """Return an empty KV cache whose rows are all at the same position."""
        return replace(self._prior.start(batch), is_uniform=True)

    def step(
        self, codes: Int[Tensor, " batch"] | None, state: KVCache
    ) -> tuple[Float[Tensor, "batch codebook_size"], KVCache]:  # fmt: skip
        """Return the logits of the next code. The cache is updated in place: use the state returned, not the one given."""
        if state.max_position >= self.length:
            raise ValueError(f"all {self.length} codes are sampled; there is no further step")
        if codes is not None:
            return self.logits(codes[:, None], state)[:, 0], advanced(state, 1)
        state.keys[:, :, :, :1], state.values[:, :, :, :1] = self._first_keys, self._first_values
        return self._first_logits.expand(len(state.position), -1), advanced(state, 1)

    @abstractmethod
    def logits(self, tokens: Int[Tensor, "batch window"], state: KVCache) -> Float[Tensor, "batch window codebook_size"]:
        """Return the logits of the codes after each of these, which follow those in the cache, and write them to it.

        Rows at positions of their own take one code each.
        """


def advanced(state: KVCache, steps: int) -> KVCache:
    """Return the state after that many steps, whose keys and values are written."""
    return replace(state, position=state.position + steps, max_position=state.max_position + steps)
