"""Laws 1 and 7 for the VAE: any prefix of latents decodes, and truncation masks both terms alike."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from anytime.autoencoders.truncation import Full, keep_mask, sample_keep
from anytime.baselines.vae import VAE, VAEConfig

SHAPES = {"grey": (1, 12, 12), "colour": (3, 16, 8)}


@pytest.fixture(scope="module", params=SHAPES)
def vae(request: pytest.FixtureRequest) -> VAE:
    config = VAEConfig(
        name="tiny", shape=SHAPES[request.param], length=6, widths=(4, 6), kernels=(4, 4, 3), strides=(2, 2, 1)
    )  # fmt: skip
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        made = VAE(config).train()
        made.posterior(torch.rand(32, *config.shape))  # updates the batch norms
        return made.eval()


def images(vae: VAE, count: int = 4) -> Tensor:
    return torch.rand(count, *vae.config.shape, generator=torch.Generator().manual_seed(3))


def noise(vae: VAE, count: int = 4) -> Tensor:
    return torch.randn(count, vae.length, vae.config.dim, generator=torch.Generator().manual_seed(4))


@torch.no_grad()
def test_every_prefix_is_a_complete_sample(vae: VAE) -> None:
    latents = vae.latents(images(vae))
    decoded = [vae.decode(latents[:, :k]) for k in range(vae.length + 1)]
    for x in decoded:
        assert x.shape == (4, *vae.config.shape)
        assert 0 <= x.min() <= x.max() <= 1
    for shorter, longer in pairwise(decoded):
        assert (shorter != longer).flatten(1).any(1).all()
    assert torch.equal(decoded[0], decoded[0][:1].expand_as(decoded[0]))


def test_dropped_latents_get_no_gradient(vae: VAE) -> None:
    """Neither from the reconstruction nor from the KL divergence; kept latents get both."""
    keep = torch.tensor([1, 2, 4, 6])
    mask = keep_mask(keep, vae.length)
    for term in ("reconstruction", "kl"):
        seen: list[Tensor] = []

        def keep_gradient(
            module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor, seen: list[Tensor] = seen
        ) -> None:
            output.retain_grad()
            seen.append(output)

        handle = vae.encoder.register_forward_hook(keep_gradient)
        try:
            getattr(vae(images(vae), keep, noise(vae)), term).sum().backward()
        finally:
            handle.remove()
            vae.zero_grad(set_to_none=True)
        for half in seen[0].grad.flatten(2).chunk(2, dim=1):  # of the mean, of the variance
            assert (half[~mask] == 0).all()
            assert (half[mask].abs().amax(-1) > 0).all()


@torch.no_grad()
def test_the_divergence_of_a_prefix_grows_with_it(vae: VAE) -> None:
    x, eps = images(vae), noise(vae)
    sums = torch.stack([vae(x, torch.full((4,), k), eps).kl for k in range(vae.length + 1)])
    assert (sums[0] == 0).all()
    groups = vae.posterior(x).kl() / x[0].numel()
    torch.testing.assert_close(sums.diff(dim=0), groups.T, atol=1e-6, rtol=1e-4)


@torch.no_grad()
def test_full_is_the_standard_vae(vae: VAE) -> None:
    x, eps = images(vae), noise(vae)
    keep = sample_keep(Full(), vae.length, torch.rand(4))
    whole = vae.posterior(x).kl().sum(1) / x[0].numel()
    torch.testing.assert_close(vae(x, keep, eps).kl, whole)
