"""What needs the features or the pictures themselves, not their moments alone: KID, precision, recall, nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from anytime.core.random import derive, permutation

SUBSETS, SUBSET = 100, 1000
"""KID is the mean over so many subsets of so many features; of fewer than twice as many features, half are taken."""
NEAREST = 3
"""Precision and recall look at the third nearest neighbour, as their authors do."""
BLOCK = 1000  # rows compared with all others at a time: 80 MB of distances to 10,000


@dataclass(frozen=True, slots=True)
class KID:
    mean: float
    std: float  # standard deviation over the subsets
    subset: int  # features in a subset


def compute_kid(
    first: Float[Tensor, "n features"], second: Float[Tensor, "m features"], seed: int = 0, subsets: int = SUBSETS
) -> KID:
    """KID: the unbiased squared MMD under k(a, b) = (a·b / features + 1)³, over subsets that the seed fixes."""
    size = max(2, min(SUBSET, len(first) // 2, len(second) // 2))
    found = torch.empty(subsets, dtype=torch.float64)
    for index in range(subsets):
        chosen = (
            features[permutation(len(features), derive(seed, "kid", side), index)[:size].to(features.device)].double()
            for side, features in enumerate((first, second))
        )
        found[index] = _squared_mmd(*chosen)
    return KID(float(found.mean()), float(found.std()), size)


def _squared_mmd(a: Float[Tensor, "n features"], b: Float[Tensor, "n features"]) -> Float[Tensor, ""]:
    """Mean kernel within each set, pairs of one with itself left out, less twice the mean between them."""
    n = len(a)
    within = sum((kernel.sum() - kernel.trace()) / (n * (n - 1)) for kernel in (_kernel(a, a), _kernel(b, b)))
    return within - 2 * _kernel(a, b).mean()


def _kernel(a: Float[Tensor, "n features"], b: Float[Tensor, "m features"]) -> Float[Tensor, "n m"]:
    return (a @ b.T / a.shape[1] + 1) ** 3


@dataclass(frozen=True, slots=True)
class PrecisionRecall:
    precision: float  # share of the samples that lie among the real ones
    recall: float  # share of the real ones that lie among the samples


def compute_precision_recall(
    samples: Float[Tensor, "n features"], real: Float[Tensor, "m features"], nearest: int = NEAREST
) -> PrecisionRecall:
    """Improved precision and recall: a point lies among a set if it is nearer to one of its members than that member's
    `nearest`-th neighbour in the set."""
    samples, real = samples.double(), real.double()
    precision, recall = _in_manifold(samples, real, nearest), _in_manifold(real, samples, nearest)
    return PrecisionRecall(float(precision.double().mean()), float(recall.double().mean()))


def _in_manifold(points: Float[Tensor, "n features"], members: Float[Tensor, "m features"], nearest: int) -> Bool[Tensor, " n"]:
    radii = _radii(members, nearest)
    return torch.cat([(_squared_distances(part, members) <= radii).any(1) for part in points.split(BLOCK)])


def _radii(members: Float[Tensor, "m features"], nearest: int) -> Float[Tensor, " m"]:
    """Squared distance of each member to its `nearest`-th neighbour; of fewer members, to the farthest."""
    rank = min(nearest, len(members) - 1) + 1  # the first is the member itself
    parts = [_squared_distances(part, members).kthvalue(rank, dim=1).values for part in members.split(BLOCK)]
    return torch.cat(parts)


@dataclass(frozen=True, slots=True)
class Nearest:
    """Of each picture, those of another set that look most like it."""

    index: Tensor  # [n, count], the nearest first
    distance: Tensor  # [n, count], root mean square of the pixels' differences, in [0, 1]


def nearest_images(x: UInt8[Tensor, "n ..."], among: UInt8[Tensor, "m ..."], count: int, device: torch.device) -> Nearest:
    """The `count` nearest of `among` to every picture, pixel by pixel, all of them looked at: what a copy would betray."""
    points, count = x.flatten(1).to(device).double(), min(count, len(among))
    best = torch.full((len(x), count), torch.inf, dtype=torch.float64, device=device)
    index = torch.zeros(len(x), count, dtype=torch.long, device=device)
    for start, part in zip(range(0, len(among), BLOCK), among.split(BLOCK), strict=True):
        found = _squared_distances(points, part.flatten(1).to(device).double())
        indices = torch.arange(start, start + len(part), device=device).expand_as(found)
        best, chosen = torch.cat([best, found], 1).topk(count, dim=1, largest=False)
        index = torch.cat([index, indices], 1).gather(1, chosen)
    return Nearest(index.cpu(), (best / points.shape[1]).sqrt().cpu() / 255)


def compare_nearest(
    x: UInt8[Tensor, "n ..."], one: UInt8[Tensor, "m ..."], other: UInt8[Tensor, "m ..."], device: torch.device
) -> tuple[float, float, float]:
    """Median distance to the nearest of one set and of another, and the share of x that is nearer to the one; ties are half."""
    a, b = (nearest_images(x, among, 1, device).distance[:, 0] for among in (one, other))
    return float(a.median()), float(b.median()), float(((a < b).double() + (a == b).double() / 2).mean())


def _squared_distances(a: Float[Tensor, "n features"], b: Float[Tensor, "m features"]) -> Float[Tensor, "n m"]:
    # float64: ‖a‖² − 2 a·b + ‖b‖² of near neighbours cancels, and float32 would swap their order.
    return torch.addmm(a.square().sum(1)[:, None] + b.square().sum(1), a, b.T, alpha=-2).clamp_min(0)
