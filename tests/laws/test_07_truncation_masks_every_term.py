"""Law 7. Truncation masks the reconstruction, codebook and commitment terms alike; `Geometric(p -> 0)` is `Uniform`."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anytime.autoencoders.losses import Losses, Reduction, vq_losses
from anytime.autoencoders.quantizer import Quantizer, QuantizerConfig
from anytime.autoencoders.truncation import (
    Full,
    Geometric,
    Mixture,
    Truncation,
    Uniform,
    keep_mask,
    probabilities,
    sample_keep,
    truncate,
)
from anytime.autoencoders.vqvae import VQVAE
from anytime.core import random

REDUCTIONS = ("sum", "mean")


def images(autoencoder: VQVAE, count: int = 4) -> Tensor:
    return torch.rand(count, *autoencoder.config.shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_dropped_codes_get_no_gradient(autoencoder: VQVAE, reduction: Reduction, training: bool) -> None:
    model = copy.deepcopy(autoencoder).train(training)
    x, keep = images(model), torch.tensor([1, 2, 4, model.length])
    latents = model.latents(x).detach().requires_grad_()
    quantized = model.quantizer(latents)
    x_hat = model.decode_latents(truncate(quantized.latents, keep))
    vq_losses(x, x_hat, quantized, keep, reduction).total.sum().backward()

    mask = keep_mask(keep, model.length)
    assert latents.grad is not None and model.quantizer.codebook.grad is not None
    assert (latents.grad[~mask] == 0).all()
    assert (latents.grad[mask].abs().amax(-1) > 0).all()
    moved = model.quantizer.codebook.grad.abs().amax(-1) > 0
    used = torch.zeros(model.codebook_size, dtype=torch.bool)
    used[quantized.codes[mask]] = True
    assert torch.equal(moved, used)


def test_each_term_alone_is_masked(autoencoder: VQVAE) -> None:
    """The reconstruction term and the quantizer's two terms: none of them leaks a gradient."""
    x, keep = images(autoencoder), torch.tensor([1, 2, 3, 4])
    mask = keep_mask(keep, autoencoder.length)
    for term in ("reconstruction", "quantization"):
        latents = autoencoder.latents(x).detach().requires_grad_()
        quantized = autoencoder.quantizer(latents)
        losses = vq_losses(x, autoencoder.decode_latents(truncate(quantized.latents, keep)), quantized, keep, "sum")
        (gradient,) = torch.autograd.grad(getattr(losses, term).sum(), latents)
        assert (gradient[~mask] == 0).all()
        assert (gradient[mask].abs().amax(-1) > 0).all()


@torch.no_grad()
def test_losses_against_explicit_loops(autoencoder: VQVAE) -> None:
    """‖x − d(z_≤i)‖² + Σ_{j≤i} (1 + β) ‖e(x)_j − q(z)_j‖², written out with loops."""
    x, keep = images(autoencoder), [1, 2, 4, autoencoder.length]
    out = autoencoder(x, torch.tensor(keep))
    losses = {r: vq_losses(x, out.x, out.quantized, torch.tensor(keep), r) for r in REDUCTIONS}
    beta, dim, size = autoencoder.config.quantizer.commitment, autoencoder.config.dim, x[0].numel()
    for row, count in enumerate(keep):
        z = [out.latents[row, j].double() for j in range(count)]
        e = [autoencoder.quantizer.codebook[out.quantized.codes[row, j]].double() for j in range(count)]
        quantization = sum((1 + beta) * float(((a - b) ** 2).sum()) for a, b in zip(z, e, strict=True))
        error = float(((x[row].double() - out.x[row].double()) ** 2).sum())
        for r, denominator in (("sum", size), ("mean", count * dim)):
            assert losses[r].reconstruction[row].item() == pytest.approx(error / size, rel=1e-4)
            assert losses[r].quantization[row].item() == pytest.approx(quantization / denominator, rel=1e-4)
            assert losses[r].total[row].item() == pytest.approx(error / size + quantization / denominator, rel=1e-4)


def exact_ordered_losses(model: VQVAE, x: Tensor, reduction: Reduction) -> list[Losses]:
    """Eq. 6 without sampling: every truncation 1..length of one encoding."""
    quantized, terms = model.quantizer(model.latents(x)), []
    for k in range(1, model.length + 1):
        keep = torch.full((len(x),), k)
        terms.append(vq_losses(x, model.decode_latents(truncate(quantized.latents, keep)), quantized, keep, reduction))
    return terms


@torch.no_grad()
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_mean_of_the_sampled_objective_is_the_exact_one(autoencoder: VQVAE, reduction: Reduction) -> None:
    x = images(autoencoder)
    terms: list[Losses] = []
    for k in range(1, autoencoder.length + 1):
        keep = torch.full((len(x),), k)
        out = autoencoder(x, keep)
        terms.append(vq_losses(x, out.x, out.quantized, keep, reduction))
    exact = exact_ordered_losses(autoencoder, x, reduction)
    for name in ("total", "reconstruction", "quantization"):
        mean, expected = (torch.stack([getattr(loss, name) for loss in losses]).mean(0) for losses in (terms, exact))
        torch.testing.assert_close(mean, expected, atol=1e-6, rtol=1e-5)
    assert (terms[0].quantization != terms[-1].quantization).all()


def test_an_ema_codebook_learns_from_kept_codes_only() -> None:
    torch.manual_seed(0)
    quantizer = Quantizer(QuantizerConfig(codebook_size=5, codebook="ema", ema_decay=0.5), 3)
    latents, mask = torch.randn(4, 6, 3), keep_mask(torch.tensor([1, 2, 4, 6]), 6)
    codes = quantizer.nearest(latents)
    other = copy.deepcopy(quantizer)
    before = quantizer.codebook.clone()
    quantizer.update(latents, codes, mask, seed=0, step=0)
    other.update(torch.where(mask[..., None], latents, 1e3), torch.where(mask, codes, 0), mask, seed=0, step=0)
    assert torch.equal(quantizer.codebook, other.codebook)
    assert not torch.equal(quantizer.codebook, before)


@given(length=st.integers(1, 12), batch=st.integers(1, 5), data=st.data())
def test_truncate_zeroes_the_rest_and_nothing_else(length: int, batch: int, data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.integers(0, length), min_size=batch, max_size=batch))
    latents = torch.randn(batch, length, 2, generator=torch.Generator().manual_seed(length)) + 10
    cut = truncate(latents, torch.tensor(keep))
    for row, count in enumerate(keep):
        assert torch.equal(cut[row, :count], latents[row, :count])
        assert (cut[row, count:] == 0).all()


@pytest.mark.parametrize("length", [1, 2, 16, 100])
@pytest.mark.parametrize("p", [0.03, 0.5, 0.97])
def test_geometric_is_the_papers_formula(p: float, length: int) -> None:
    expected = [(1 - p) ** (k - 1) * p / (1 - (1 - p) ** length) for k in range(1, length + 1)]
    found = probabilities(Geometric(p=p), length)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("length", [1, 16, 100])
def test_geometric_with_vanishing_p_is_uniform(length: int) -> None:
    uniform = probabilities(Uniform(), length)
    gaps = [float((probabilities(Geometric(p=p), length) - uniform).abs().max()) for p in (1e-2, 1e-4, 1e-6, 1e-12, 1e-300)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-2] < 1e-11
    assert gaps[-1] < 1e-15
    uniforms = random.uniform(0, torch.arange(2000))
    assert torch.equal(sample_keep(Geometric(p=1e-15), length, uniforms), sample_keep(Uniform(), length, uniforms))


DISTRIBUTIONS = [
    Full(),
    Uniform(),
    Geometric(p=0.03),
    Geometric(p=0.4),
    Mixture(full=0.25),
    Mixture(full=0.0),
    Mixture(full=1.0),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("length", [1, 2, 16])
def test_keep_is_sampled_with_the_distributions_frequencies(distribution: Truncation, length: int) -> None:
    expected = probabilities(distribution, length)
    assert expected.sum().item() == pytest.approx(1, abs=1e-12)
    count = 40_000
    keep = sample_keep(distribution, length, random.uniform(12, torch.arange(count)))
    assert keep.min() >= 1 and keep.max() <= length
    observed = torch.bincount(keep, minlength=length + 1)[1:].double()
    possible = expected > 0
    assert (observed[~possible] == 0).all()
    chi_square = ((observed - count * expected).square() / (count * expected))[possible].sum().item()
    freedom = int(possible.sum()) - 1
    assert chi_square <= freedom + 5 * (2 * freedom) ** 0.5, f"{chi_square:.1f} for {freedom} degrees of freedom"


def test_mixture_lies_between_full_and_uniform() -> None:
    assert torch.equal(probabilities(Mixture(full=1.0), 7), probabilities(Full(), 7))
    assert torch.equal(probabilities(Mixture(full=0.0), 7), probabilities(Uniform(), 7))
    quarter = probabilities(Mixture(full=0.25), 4)
    assert quarter.tolist() == pytest.approx([0.75 / 4] * 3 + [0.75 / 4 + 0.25])


def test_keep_at_the_edges_of_the_unit_interval() -> None:
    edges = torch.tensor([0.0, 1e-9, 0.25, 0.5, 1 - 2**-24])
    assert sample_keep(Uniform(), 4, edges).tolist() == [1, 1, 2, 3, 4]
    assert sample_keep(Full(), 4, edges).tolist() == [4] * 5
