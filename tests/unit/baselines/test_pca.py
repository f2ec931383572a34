from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from anytime.baselines import pca


@pytest.fixture(scope="module")
def x() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([5.0, 3.0, 2.0, 1.0, 0.5, 0.2])
    turn = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
    return ((torch.randn(300, 6, generator=generator) * scales) @ turn + 7).view(300, 1, 2, 3)


def components(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and principal directions (as columns) by numpy's singular value decomposition."""
    flat = x.flatten(1).double().numpy()
    return flat.mean(0), np.linalg.svd(flat - flat.mean(0), full_matrices=False)[2].T


@pytest.mark.parametrize("length", [1, 3, 6])
def test_against_singular_values(x: Tensor, length: int) -> None:
    found, (mean, directions) = pca.fit(x, length), components(x)
    assert found.length == length
    assert found.mean.dtype == found.components.dtype == torch.float64
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    overlaps = np.abs((found.components.numpy() * directions[:, :length]).sum(0))  # up to sign
    np.testing.assert_allclose(overlaps, 1, atol=1e-9)


def test_components_are_orthonormal_and_most_important_first(x: Tensor) -> None:
    found = pca.fit(x, 6)
    torch.testing.assert_close(found.components.T @ found.components, torch.eye(6, dtype=torch.float64))
    variances = found.encode(x).var(0)
    assert torch.equal(variances, variances.sort(descending=True).values)


def test_a_prefix_is_the_best_projection_and_all_is_exact(x: Tensor) -> None:
    found = pca.fit(x, 6)
    latents, flat = found.encode(x), x.flatten(1).double()
    singular = np.linalg.svd((flat - flat.mean(0)).numpy(), compute_uv=False)
    for k in range(7):
        error = (found.decode(latents[:, :k]) - flat).square().sum().item()
        assert error == pytest.approx((singular[k:] ** 2).sum(), rel=1e-9, abs=1e-9)
    assert torch.equal(found.decode(latents[:, :0]), found.mean.expand(300, -1))


def test_parts_do_not_matter(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pca.fit(x, 4)
    monkeypatch.setattr(pca, "BATCH", 7)
    parts = pca.fit(x, 4)
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close((parts.components * whole.components).sum(0).abs(), torch.ones(4, dtype=torch.float64))


def test_bytes_are_pixels_between_0_and_1() -> None:
    x = torch.randint(256, (50, 1, 2, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    bytes_, floats = pca.fit(x, 3), pca.fit(x.double() / 255, 3)
    torch.testing.assert_close(bytes_.mean, floats.mean)
    torch.testing.assert_close((bytes_.components * floats.components).sum(0).abs(), torch.ones(3, dtype=torch.float64))
