"""KID: the kernel inception distance between two sets of features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.core.random import derive, permutation

SUBSETS, SUBSET_SIZE = 100, 1000
"""KID is the mean over 100 subsets of 1,000 features each; a smaller set gives subsets of half its size."""


@dataclass(frozen=True, slots=True)
class KID:
    """The mean squared MMD over the subsets."""

    mean: float
    std: float  # standard deviation over the subsets
    subset: int  # features in a subset


def compute_kid(
    first: Float[Tensor, "n features"], second: Float[Tensor, "m features"], seed: int = 0, subsets: int = SUBSETS
) -> KID:
    """Return the unbiased squared MMD under k(a, b) = (a·b / features + 1)³, over subsets fixed by the seed."""
    size = max(2, min(SUBSET_SIZE, len(first) // 2, len(second) // 2))
    found = torch.empty(subsets, dtype=torch.float64)
    for index in range(subsets):
        chosen = (
            features[permutation(len(features), derive(seed, "kid", side), index)[:size].to(features.device)].double()
            for side, features in enumerate((first, second))
        )
        found[index] = _squared_mmd(*chosen)
    return KID(float(found.mean()), float(found.std()), size)


def _squared_mmd(a: Float[Tensor, "n features"], b: Float[Tensor, "n features"]) -> Float[Tensor, ""]:
    """Mean kernel within each set, without pairs of a point with itself, less twice the mean between the sets."""
    n = len(a)
    within = sum((kernel.sum() - kernel.trace()) / (n * (n - 1)) for kernel in (_kernel(a, a), _kernel(b, b)))
    return within - 2 * _kernel(a, b).mean()


def _kernel(a: Float[Tensor, "n features"], b: Float[Tensor, "m features"]) -> Float[Tensor, "n m"]:
    return (a @ b.T / a.shape[1] + 1) ** 3
