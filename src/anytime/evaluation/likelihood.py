"""How well a prior knows codes that it was not trained on, and a density numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int, UInt8
from torch import Tensor

from anytime.data.loader import to_float
from anytime.model import AnytimeModel
from anytime.priors.dequantized import DensityModel
from anytime.priors.prior import Prior
from anytime.randomness import derive, uniform

BATCH = 500
DENSITY_BATCH = 100  # sequences are as long as a picture has values


def held_out_codes(model: AnytimeModel, x: UInt8[Tensor, "n channel height width"]) -> Int[Tensor, "n length"]:
    """The codes of pictures, as the prior is asked about them."""
    return torch.cat([model.encode(to_float(part)) for part in x.split(BATCH)])


@torch.no_grad()
def bits_by_position(prior: Prior[Any], codes: Int[Tensor, "n length"]) -> list[float]:
    """−log₂ p(code_i | codes before it), averaged over the examples, for every position i.

    Their sum is the bits that a whole example takes; log₂ codebook_size is what a prior that knows nothing needs for each.
    """
    sums = torch.zeros(codes.shape[1], dtype=torch.float64, device=codes.device)
    for part in codes.long().split(BATCH):
        nats = F.cross_entropy(prior(part).float().transpose(1, 2), part, reduction="none")
        sums += nats.double().sum(0)
    return (sums / len(codes) / math.log(2)).tolist()


@torch.no_grad()
def bits_per_dim(model: DensityModel, x: UInt8[Tensor, "n channel height width"], seed: int = 0) -> float:
    """−log₂ p per value of x, averaged over the examples, each dequantised once by its number and the seed (Appendix D)."""
    device, total, key = model.centre.device, 0.0, derive(seed, "held-out")
    element = torch.arange(x[0].numel(), dtype=torch.int32, device=device)
    for first, part in zip(range(0, len(x), DENSITY_BATCH), x.split(DENSITY_BATCH), strict=True):
        rows = torch.arange(first, first + len(part), dtype=torch.int32, device=device)
        bits = model.bits_per_dim(part.to(device), uniform(key, rows[:, None], element))
        total += float(bits.double().sum())
    return total / len(x)
