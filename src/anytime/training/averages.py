"""Weights that follow others slowly: the running mean of a training's weights, which is often better than any of them."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Follower:
    """`kept` follows `live`, which is what is trained; with a memory of 0 they are one and the same."""

    def __init__(self, kept: nn.Module, memory: float) -> None:
        self.kept = kept
        self.live = copy.deepcopy(kept) if memory else kept
        self._mean = get_ema_multi_avg_fn(memory)

    @property
    def apart(self) -> bool:
        return self.live is not self.kept

    @torch.no_grad()
    def follow(self) -> None:
        """After every step."""
        if not self.apart:
            return
        self._mean(list(self.kept.parameters()), list(self.live.parameters()), None)
        for own, other in zip(self.kept.buffers(), self.live.buffers(), strict=True):
            own.copy_(other)
