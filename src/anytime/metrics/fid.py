"""FID: the Fréchet distance between two sets of features, from sums over any number of batches.

d² = ‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2 (Σ₁ Σ₂)^½) between Gaussians with the sets' means and covariances. On Inception's features
this is FID. The protocol: `inception` (network), `feature_stats` (moments of data and samples), `quality` (rows by code count).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, sum and sum of outer products of feature vectors; moments of two sets add up."""

    count: int
    total: Tensor  # [features], float64: FID subtracts two nearly equal traces; float32 loses the third digit at 50k samples
    outer: Tensor  # [features, features], float64

    @staticmethod
    def empty(size: int, device: torch.device | None = None) -> Moments:
        """Return the moments of an empty set."""
        zeros = torch.zeros(size, dtype=torch.float64, device=device)
        return Moments(0, zeros, torch.zeros(size, size, dtype=torch.float64, device=device))

    @staticmethod
    def of(features: Float[Tensor, "n features"]) -> Moments:
        """Return the moments of a batch of feature vectors."""
        exact = features.double()
        return Moments(len(features), exact.sum(0), exact.T @ exact)

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.count + other.count, self.total + other.total, self.outer + other.outer)

    @property
    def mean(self) -> Float[Tensor, " features"]:
        """Mean feature vector."""
        return self.total / self.count

    @property
    def covariance(self) -> Float[Tensor, "features features"]:
        """Unbiased covariance, divided by count − 1."""
        return (self.outer - torch.outer(self.total, self.total) / self.count) / (self.count - 1)


def frechet_distance(first: Moments, second: Moments) -> float:
    """Return d² between two sets of at least two vectors each."""
    return gaussian_distance(first.mean, first.covariance, second.mean, second.covariance)


def gaussian_distance(
    mean: Float[Tensor, " features"],
    covariance: Float[Tensor, "features features"],
    other_mean: Float[Tensor, " features"],
    other_covariance: Float[Tensor, "features features"],
) -> float:
    """Return d² between two Gaussians, in closed form.

    tr (Σ₁ Σ₂)^½ = tr (Σ₁^½ Σ₂ Σ₁^½)^½ = sum of the singular values of Σ₂^½ Σ₁^½. Singular values are more accurate than the
    eigenvalues of the symmetric product. The product squares them, so that each zero of a singular covariance becomes 10⁻⁸:
    −1.5e-4 in all instead of −8e-12 for 1,000 samples against themselves.
    """
    mean, covariance, other_mean, other_covariance = (
        moment.double().cpu() for moment in (mean, covariance, other_mean, other_covariance)
    )
    trace_sqrt = torch.linalg.svdvals(_root(other_covariance) @ _root(covariance)).sum()
    mean_term = (mean - other_mean).square().sum()
    return max(0.0, float(mean_term + covariance.trace() + other_covariance.trace() - 2 * trace_sqrt))


def _root(covariance: Float[Tensor, "features features"]) -> Float[Tensor, "features features"]:
    """Symmetric square root; eigenvalues within rounding error of zero count as zero, as their roots would be large."""
    values, vectors = torch.linalg.eigh(covariance)
    threshold = len(values) * torch.finfo(values.dtype).eps * values[-1]
    root: Tensor = (vectors * torch.where(values > threshold, values, 0).sqrt()) @ vectors.T
    return root
