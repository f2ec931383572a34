"""Nearest neighbours: whether samples are copies of training examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

BLOCK = 1000  # rows compared with all others at a time: 80 MB of distances to 10,000


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest images of another set, for each image."""

    index: Tensor  # [n, count], the nearest first
    distance: Tensor  # [n, count], root mean square of the pixel differences, pixels in [0, 1]


def nearest_images(x: UInt8[Tensor, "n ..."], among: UInt8[Tensor, "m ..."], count: int, device: torch.device) -> Nearest:
    """Find the `count` nearest images of `among` for every image, by exhaustive search over pixels."""
    points, count = x.flatten(1).to(device).double(), min(count, len(among))
    best = torch.full((len(x), count), torch.inf, dtype=torch.float64, device=device)
    index = torch.zeros(len(x), count, dtype=torch.long, device=device)
    for start, part in zip(range(0, len(among), BLOCK), among.split(BLOCK), strict=True):
        found = squared_distances(points, part.flatten(1).to(device).double())
        indices = torch.arange(start, start + len(part), device=device).expand_as(found)
        best, chosen = torch.cat([best, found], 1).topk(count, dim=1, largest=False)
        index = torch.cat([index, indices], 1).gather(1, chosen)
    return Nearest(index.cpu(), (best / points.shape[1]).sqrt().cpu() / 255)


@dataclass(frozen=True, slots=True)
class SeenComparison:
    """Distances of images to training images (seen) and to held-out images (unseen)."""

    seen_distance: float  # median distance to the nearest seen image
    unseen_distance: float
    nearer_to_seen: float  # fraction of the images nearer to a seen image than to any unseen one; a tie counts half


def compare_seen(
    x: UInt8[Tensor, "n ..."], seen: UInt8[Tensor, "m ..."], unseen: UInt8[Tensor, "m ..."], device: torch.device
) -> SeenComparison:
    """Compare the distances of images to two sets of equal size."""
    a, b = (nearest_images(x, among, 1, device).distance[:, 0] for among in (seen, unseen))
    nearer = (a < b).double() + (a == b).double() / 2
    return SeenComparison(float(a.median()), float(b.median()), float(nearer.mean()))


def nearest_distances(samples: Float[Tensor, "n features"], others: Float[Tensor, "m features"]) -> Float[Tensor, " n"]:
    """Return the distance of each sample's features to the nearest of the others; zero is a copy."""
    exact = "donot_use_mm_for_euclid_dist"  # by inner products a copy would be at a distance of about 0.01
    return torch.cat([torch.cdist(part, others, compute_mode=exact).amin(1) for part in samples.split(BLOCK)])


def squared_distances(a: Float[Tensor, "n features"], b: Float[Tensor, "m features"]) -> Float[Tensor, "n m"]:
    """Return ‖a − b‖² for every pair."""
    # float64: ‖a‖² − 2 a·b + ‖b‖² of near neighbours cancels, and float32 would change their order.
    return torch.addmm(a.square().sum(1)[:, None] + b.square().sum(1), a, b.T, alpha=-2).clamp_min(0)
