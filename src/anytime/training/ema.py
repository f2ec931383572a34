"""Weights that follow others slowly: the running mean of a training's weights, which is often better than any of them."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Follower:
    """`kept` follows `live`, which is what is trained; with a memory of 0 they are one and the same."""

    def __init__(self, kept: nn.Module, memory: float) -> None:
        self.kept, self.memory = kept, memory
        self.live = copy.deepcopy(kept) if memory else kept

    @property
    def apart(self) -> bool:
        return self.live is not self.kept

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """After every step. The memory is short at first: where training began is not to be remembered."""
        if not self.apart:
            return
        mean = get_ema_multi_avg_fn(min(self.memory, (1 + step) / (10 + step)))
        mean(list(self.kept.parameters()), list(self.live.parameters()), None)
        for own, other in zip(self.kept.buffers(), self.live.buffers(), strict=True):
            own.copy_(other)
