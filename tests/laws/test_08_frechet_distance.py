"""Law 8: FID(A, A) = 0, the closed form on Gaussians, and 3.15 ± 0.02 between CIFAR-10's train and test sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anytime import data
from anytime.metrics.feature_stats import FeatureStatistics
from anytime.metrics.features import RandomNetwork
from anytime.metrics.fid import Moments, frechet_distance, gaussian_distance
from anytime.metrics.inception import Inception, find_inception
from anytime.metrics.quality import data_row, reference_statistics


def normal(n: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [2, 20, 64, 5000], ids=lambda n: f"{n} of 64 features")
def test_a_set_has_distance_0_from_itself(n: int) -> None:
    """Also with a singular covariance, and with variances that span eight orders of magnitude."""
    features = 3 + normal(n, 64) * torch.logspace(2, -6, 64, dtype=torch.float64)
    moments = Moments.of(features)
    assert frechet_distance(moments, moments) <= 1e-12 * float(moments.covariance.trace())


def test_images_have_distance_0_from_themselves() -> None:
    network = RandomNetwork(torch.device("cpu"))
    x = data.load("digits").train[:300]
    found = FeatureStatistics.empty(network).plus(network(x), network.max_kept)
    assert frechet_distance(found.moments, found.moments) <= 1e-9 * float(found.moments.covariance.trace())


@given(
    st.lists(st.floats(0, 50), min_size=3, max_size=3),
    st.lists(st.floats(0, 50), min_size=3, max_size=3),
    st.floats(-20, 20),
)
def test_gaussians_with_the_same_axes(first: list[float], second: list[float], shift: float) -> None:
    """d² = ‖Δμ‖² + Σ (σ₁ − σ₂)², in any basis."""
    basis = torch.linalg.qr(normal(3, 3, seed=4)).Q
    a, b = (torch.tensor(sd, dtype=torch.float64) for sd in (first, second))
    means = torch.zeros(3, dtype=torch.float64), torch.full((3,), shift, dtype=torch.float64)
    found = gaussian_distance(means[0], basis * a**2 @ basis.T, means[1], basis * b**2 @ basis.T)
    # 1e-8 is the square root of float64's precision: a variance that much smaller than the largest rounds to 0.
    scale = float(a.square().sum() + b.square().sum())
    assert found == pytest.approx(float(3 * shift**2 + (a - b).square().sum()), rel=1e-9, abs=1e-7 * scale + 1e-9)


def test_gaussians_whose_covariances_do_not_commute() -> None:
    """In two dimensions tr (Σ₁Σ₂)^½ = √(tr Σ₁Σ₂ + 2 √det Σ₁Σ₂)."""
    a = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=torch.float64)
    b = torch.tensor([[1.0, -0.4], [-0.4, 3.0]], dtype=torch.float64)
    product = a @ b
    root = (product.trace() + 2 * product.det().sqrt()).sqrt()
    mean = torch.tensor([1.0, -2.0], dtype=torch.float64)
    expected = float(5 + a.trace() + b.trace() - 2 * root)
    assert gaussian_distance(mean, a, torch.zeros_like(mean), b) == pytest.approx(expected, rel=1e-12)
    assert gaussian_distance(torch.zeros_like(mean), b, mean, a) == pytest.approx(expected, rel=1e-12)


def test_samples_of_gaussians_come_near_the_closed_form() -> None:
    first, second = normal(40_000, 4), 1 + 2 * normal(40_000, 4, seed=1)
    found = frechet_distance(Moments.of(first), Moments.of(second))
    assert found == pytest.approx(4 + 4, rel=0.02)  # ‖Δμ‖² = 4 and Σ (2 − 1)² = 4


@pytest.mark.gpu
def test_cifar10_train_against_test(tmp_path: Path) -> None:
    """$ANYTIME_CIFAR10 is the directory of a copy and $ANYTIME_INCEPTION the network's file; the default is the cache."""
    copy, network_file = (os.environ.get(name) for name in ("ANYTIME_CIFAR10", "ANYTIME_INCEPTION"))
    dataset = data.load("cifar10", data=Path(copy) if copy else None)
    network = Inception(find_inception(Path(network_file) if network_file else None), torch.device("cuda"))
    assert (len(dataset.published_train), len(dataset.held_out)) == (50_000, 10_000)
    real = reference_statistics(dataset.published_train, network, tmp_path)
    row = data_row(dataset.held_out, real, network, tmp_path)
    assert row["fid"] == pytest.approx(3.15, abs=0.02)
    assert abs(row["kid"]) < 5 * row["kid_sd"]
    assert frechet_distance(real.moments, real.moments) < 1e-6
