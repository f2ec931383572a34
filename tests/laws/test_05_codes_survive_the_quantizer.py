"""Law 5. Through the quantizer, codes -> latents -> codes is the identity (distinct codebook entries)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anytime.autoencoders.quantizer import Quantizer, QuantizerConfig
from anytime.autoencoders.vqvae import VQVAE


def all_codes(size: int, length: int = 7) -> torch.Tensor:
    """Return every code at least once, as [batch, length]."""
    return (torch.arange(-(-size // length) * length) % size).view(-1, length)


def assert_identity(quantizer: Quantizer) -> None:
    codes = all_codes(quantizer.config.codebook_size)
    entries = quantizer.lookup(codes)
    assert torch.equal(quantizer.nearest(entries.detach()), codes)
    again = quantizer(entries.detach())
    assert torch.equal(again.codes, codes)
    assert torch.equal(again.latents, entries)
    assert (again.loss == 0).all()


@pytest.mark.parametrize(("size", "dim"), [(126, 49), (1000, 16), (500, 64)])
@pytest.mark.parametrize("codebook", ["gradient", "ema"])
def test_identity_at_the_start_of_training(size: int, dim: int, codebook: str) -> None:
    torch.manual_seed(size)
    assert_identity(Quantizer(QuantizerConfig(codebook_size=size, codebook=codebook), dim))


@given(
    size=st.integers(2, 200),
    dim=st.integers(2, 20),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    offset=st.sampled_from([0.0, 1.0, -4.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_identity_for_entries_anywhere(size: int, dim: int, scale: float, offset: float, seed: int) -> None:
    quantizer = Quantizer(QuantizerConfig(codebook_size=size), dim)
    entries = torch.randn(size, dim, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        quantizer.codebook.copy_((entries + offset) * scale)
    assert_identity(quantizer)


def test_identity_in_every_autoencoder(autoencoder: VQVAE) -> None:
    assert_identity(autoencoder.quantizer)


def test_equal_entries_break_the_identity() -> None:
    quantizer = Quantizer(QuantizerConfig(codebook_size=3), 2)
    with torch.no_grad():
        quantizer.codebook.copy_(torch.tensor([[0.0, 1.0], [2.0, 0.0], [2.0, 0.0]]))
    assert quantizer.nearest(quantizer.lookup(torch.tensor([[0, 1, 2]])).detach()).tolist() == [[0, 1, 1]]
