from __future__ import annotations

import pytest
import torch

from anytime.metrics.fid import Moments, frechet_distance


def normal(n: int, size: int = 5) -> torch.Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(n))


def test_moments_are_those_of_all_batches_together() -> None:
    features = normal(101)
    summed = Moments.empty(5)
    for part in features.split(7):
        summed = summed + Moments.of(part)
    assert summed.count == 101
    torch.testing.assert_close(summed.mean, features.double().mean(0))
    torch.testing.assert_close(summed.covariance, torch.cov(features.double().T))


def test_moments_of_features_far_from_zero() -> None:
    """Sums in float32 would leave nothing of a variance of 1e-4 around 1,000."""
    features = 1000 + 0.01 * normal(5000).double()
    torch.testing.assert_close(Moments.of(features).covariance, torch.cov(features.T), rtol=1e-3, atol=2e-8)


def test_the_distance_is_symmetric_and_grows_with_the_shift() -> None:
    a = Moments.of(normal(200))
    near, far = (Moments.of(normal(300) + shift) for shift in (0.5, 3.0))
    assert frechet_distance(a, near) == pytest.approx(frechet_distance(near, a), rel=1e-9)
    assert 0 < frechet_distance(a, near) < frechet_distance(a, far)
