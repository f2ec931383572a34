"""How well a density knows numbers that it was not trained on. Of priors over codes: training.order."""

from __future__ import annotations

import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.baselines.density import DensityModel
from anytime.core.random import derive, uniform

BATCH = 100  # sequences are as long as a picture has values


@torch.no_grad()
def bits_per_dim(model: DensityModel, x: UInt8[Tensor, "n channel height width"], seed: int = 0) -> float:
    """−log₂ p per value of x, averaged over the examples, each dequantised once by its number and the seed (Appendix D)."""
    device, total, key = model.centre.device, 0.0, derive(seed, "held-out")
    element = torch.arange(x[0].numel(), dtype=torch.int32, device=device)
    for first, part in zip(range(0, len(x), BATCH), x.split(BATCH), strict=True):
        rows = torch.arange(first, first + len(part), dtype=torch.int32, device=device)
        bits = model.bits_per_dim(part.to(device), uniform(key, rows[:, None], element))
        total += float(bits.double().sum())
    return total / len(x)
