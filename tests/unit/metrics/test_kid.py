from __future__ import annotations

import pytest
import torch

from anytime.metrics.kid import compute_kid


def normal(n: int, size: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def test_kid_by_hand() -> None:
    """All pairs written out, over the subset that is the whole of two sets of two."""
    a, b = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    within_a, within_b = (0 / 2 + 1) ** 3, (0 / 2 + 1) ** 3
    between = ((2 / 2 + 1) ** 3 + 1 + 1 + (2 / 2 + 1) ** 3) / 4
    found = compute_kid(a, b, subsets=5)
    assert found.mean == pytest.approx(within_a + within_b - 2 * between)
    assert found.std == pytest.approx(0, abs=1e-12)
    assert found.subset == 2


def test_kid_is_zero_for_one_distribution_and_positive_for_two() -> None:
    same = compute_kid(normal(400), normal(400, seed=1))
    other = compute_kid(normal(400), normal(400, seed=1) + 0.5)
    assert abs(same.mean) < 2 * same.std
    assert same.std > 0
    assert other.mean > 10 * other.std
    assert same.subset == 200


def test_kid_is_fixed_by_its_seed() -> None:
    a, b = normal(100), normal(100, seed=1)
    assert compute_kid(a, b, seed=1) == compute_kid(a, b, seed=1)
    assert compute_kid(a, b, seed=1) != compute_kid(a, b, seed=2)


def test_two_features_are_enough() -> None:
    assert compute_kid(normal(3), normal(2)).subset == 2
