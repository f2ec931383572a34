"""Weights that follow others slowly: the running mean of a training's weights, which is often better than any of them."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class EMA:
    """`kept` follows `live`, which is what is trained; with a memory of 0 they are one and the same."""

    def __init__(self, averaged: nn.Module, decay: float) -> None:
        self.averaged, self.decay = averaged, decay
        self.live = copy.deepcopy(averaged) if decay else averaged

    @property
    def enabled(self) -> bool:
        return self.live is not self.averaged

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After every step. The memory is short at first: where training began is not to be remembered."""
        if not self.enabled:
            return
        mean = get_ema_multi_avg_fn(min(self.decay, (1 + step) / (10 + step)))
        mean(list(self.averaged.parameters()), list(self.live.parameters()), None)
        for own, other in zip(self.averaged.buffers(), self.live.buffers(), strict=True):
            own.copy_(other)
