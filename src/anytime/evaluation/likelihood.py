"""How well the prior knows codes it was not trained on."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from anytime.data.dataset import Examples
from anytime.data.loader import to_float
from anytime.model import AnytimeModel
from anytime.priors.prior import Prior

BATCH = 500


def held_out_codes(model: AnytimeModel, x: Examples) -> Int[Tensor, "n length"]:
    """The codes of pictures or sounds, as the prior is asked about them."""
    return torch.cat([model.encode(to_float(part)) for part in torch.split(x, BATCH)])


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
