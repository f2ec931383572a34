"""Law 6. A linear ordered autoencoder finds PCA: same subspace for every prefix."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anytime.autoencoders.truncation import Full, Truncation, Uniform, probabilities, truncate
from anytime.baselines import pca


def data(size: int) -> Tensor:
    """Return centred float64 data with falling principal variances in rotated directions."""
    generator = torch.Generator().manual_seed(size)
    spread = 1.5 ** -torch.arange(size, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator)).Q
    x = (torch.randn(200, size, dtype=torch.float64, generator=generator) * spread) @ turn.T
    return x - x.mean(0)


def trained_decoder(x: Tensor, length: int, dim: int, distribution: Truncation) -> Tensor:
    """Minimise Eq. 3, the mean error over truncations, over both matrices; return the columns of the linear decoder."""
    generator = torch.Generator().manual_seed(0)
    size, latents = x.shape[1], length * dim
    encoder = (0.3 * torch.randn(size, latents, dtype=torch.float64, generator=generator)).requires_grad_()
    decoder = (0.3 * torch.randn(latents, size, dtype=torch.float64, generator=generator)).requires_grad_()
    share = probabilities(distribution, length)
    keeps = torch.arange(1, length + 1)[share > 0]
    optimizer = torch.optim.LBFGS(
        [encoder, decoder],
        max_iter=2000,
        history_size=30,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        z = (x @ encoder).view(-1, length, dim)
        errors = [(truncate(z, keep.expand(len(x))).flatten(1) @ decoder - x).square().sum(1).mean() for keep in keeps]
        mean = (torch.stack(errors) * share[share > 0]).sum()
        mean.backward()
        return mean

    optimizer.step(loss)
    return decoder.detach().T


def distance(columns: Tensor, components: Tensor) -> float:
    """Return the sine of the largest angle between two subspaces given by their columns."""
    basis = torch.linalg.qr(columns).Q
    return float(torch.linalg.matrix_norm(basis @ basis.T - components @ components.T, ord=2))


@pytest.mark.parametrize(("size", "length", "dim"), [(5, 4, 1), (7, 3, 2)])
def test_ordered_training_finds_the_principal_subspace_of_every_prefix(size: int, length: int, dim: int) -> None:
    x = data(size)
    decoder, principal = trained_decoder(x, length, dim, Uniform()), pca.fit(x, length * dim)
    for i in range(1, length + 1):
        assert distance(decoder[:, : i * dim], principal.components[:, : i * dim]) < 1e-3, f"prefix {i}"


@pytest.mark.parametrize(("size", "length", "dim"), [(5, 4, 1), (7, 3, 2)])
def test_unordered_training_finds_only_the_full_subspace(size: int, length: int, dim: int) -> None:
    x = data(size)
    decoder, principal = trained_decoder(x, length, dim, Full()), pca.fit(x, length * dim)
    assert distance(decoder, principal.components) < 1e-3
    for i in range(1, length):
        assert distance(decoder[:, : i * dim], principal.components[:, : i * dim]) > 0.1, f"prefix {i}"
