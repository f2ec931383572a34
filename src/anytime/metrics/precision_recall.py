"""Improved precision and recall: how much of one set of features lies within the manifold of another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anytime.metrics.memorisation import BLOCK, squared_distances

NEAREST = 3
"""The manifold reaches to the third nearest neighbour, as in the original paper."""


@dataclass(frozen=True, slots=True)
class PrecisionRecall:
    """Precision and recall of samples against real examples."""

    precision: float  # fraction of the samples within the manifold of the real examples
    recall: float  # fraction of the real examples within the manifold of the samples


def compute_precision_recall(
    samples: Float[Tensor, "n features"], real: Float[Tensor, "m features"], nearest: int = NEAREST
) -> PrecisionRecall:
    """Return precision and recall.

    A point is within a set's manifold if it is closer to some member than that member's `nearest`-th neighbour in the set.
    """
    samples, real = samples.double(), real.double()
    precision, recall = _in_manifold(samples, real, nearest), _in_manifold(real, samples, nearest)
    return PrecisionRecall(float(precision.double().mean()), float(recall.double().mean()))


def _in_manifold(points: Float[Tensor, "n features"], members: Float[Tensor, "m features"], nearest: int) -> Bool[Tensor, " n"]:
    rank = min(nearest, len(members) - 1) + 1  # the first is the member itself; in a small set, the last is the farthest
    radii = torch.cat([squared_distances(part, members).kthvalue(rank, dim=1).values for part in members.split(BLOCK)])
    return torch.cat([(squared_distances(part, members) <= radii).any(1) for part in points.split(BLOCK)])
