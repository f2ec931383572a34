"""Exponential moving average (EMA) of a network's weights."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class EMA:
    """`averaged` follows `live`, which is trained. With a decay of 0 they are the same module."""

    def __init__(self, averaged: nn.Module, decay: float) -> None:
        self.averaged, self.decay = averaged, decay
        self.live = copy.deepcopy(averaged) if decay else averaged

    @property
    def enabled(self) -> bool:
        """Whether there are two modules."""
        return self.live is not self.averaged

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the live weights; the decay is small at first, to forget the initial weights."""
        if not self.enabled:
            return
        mean = get_ema_multi_avg_fn(min(self.decay, (1 + step) / (10 + step)))
        mean(list(self.averaged.parameters()), list(self.live.parameters()), None)
        for own, other in zip(self.averaged.buffers(), self.live.buffers(), strict=True):
            own.copy_(other)
