"""Ancestral sampling of codes, row by row reproducible, and the sample it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from anytime.priors.prior import Prior
from anytime.sampling.noise import Settings, draw

BLOCK = 512
"""Rows sampled at a time: fixed and aligned to row numbers, so that the bytes of bulk work never depend on its division."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A complete sample, whatever the budget was."""

    data: Tensor  # float32 in the data's range, the shape of n examples
    codes: Tensor  # [n, codes drawn], int64
    seconds: float  # from the call to the finished, decoded tensor
    seed: int
    rows: Tensor  # [n] row numbers: a row's codes depend on its number, not on its neighbours
    settings: Settings
    model: str  # hash of the model that drew it

    def uint8(self) -> Tensor:
        """The pictures as bytes."""
        return (self.data * 255).round().clamp(0, 255).to(torch.uint8)


@torch.no_grad()
def sample_codes(
    prior: Prior[Any],
    rows: Int[Tensor, " batch"],
    count: int,
    *,
    seed: int,
    settings: Settings,
    prefix: Int[Tensor, "batch given"],
) -> Int[Tensor, "batch count"]:
    """The first `count` codes of each row: the prefix, then one draw after another."""
    codes = torch.empty(len(rows), count, dtype=torch.long, device=rows.device)
    given = min(prefix.shape[1], count)
    codes[:, :given] = prefix[:, :given]
    state = prior.start(len(rows))
    for position in range(count):
        logits, state = prior.step(codes[:, position - 1] if position else None, state)
        if position >= given:
            codes[:, position] = draw(logits, settings, seed, rows, position)
    return codes
