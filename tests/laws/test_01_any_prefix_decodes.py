"""Law 1. Any prefix decodes to a complete sample of the full shape."""

from __future__ import annotations

from itertools import pairwise

import torch

from anytime.autoencoders.truncation import truncate
from anytime.autoencoders.vqvae import VQVAE
from anytime.model import AnytimeModel


def random_codes(autoencoder: VQVAE, rows: int) -> torch.Tensor:
    return torch.randint(autoencoder.codebook_size, (rows, autoencoder.length), generator=torch.Generator().manual_seed(0))


def test_every_prefix_is_a_complete_sample(autoencoder: VQVAE) -> None:
    codes = random_codes(autoencoder, 3)
    for k in range(autoencoder.length + 1):
        x = autoencoder.decode(codes[:, :k])
        assert x.shape == (3, *autoencoder.config.shape)
        assert x.dtype == torch.float32
        assert x.isfinite().all()
        assert (-1 if autoencoder.config.network == "audio" else 0) <= x.min() <= x.max() <= 1


def test_every_code_of_the_prefix_matters(autoencoder: VQVAE) -> None:
    codes = random_codes(autoencoder, 3)
    decoded = [autoencoder.decode(codes[:, :k]) for k in range(autoencoder.length + 1)]
    for shorter, longer in pairwise(decoded):
        assert (shorter != longer).flatten(1).any(1).all()


def test_no_codes_decode_to_the_same_sample_in_all_rows(autoencoder: VQVAE) -> None:
    x = autoencoder.decode(random_codes(autoencoder, 4)[:, :0])
    assert torch.equal(x, x[:1].expand_as(x))


def test_missing_codes_are_zero_latents(autoencoder: VQVAE) -> None:
    codes = random_codes(autoencoder, 3)
    entries = autoencoder.quantizer.lookup(codes)
    for k in range(autoencoder.length + 1):
        expected = autoencoder.decode_latents(truncate(entries, torch.full((3,), k)))
        assert torch.equal(autoencoder.decode(codes[:, :k]), expected)


def test_training_decodes_the_same_prefixes(autoencoder: VQVAE) -> None:
    """A forward pass with `keep` decodes like a prefix of `keep` codes."""
    x = torch.rand(2, *autoencoder.config.shape, generator=torch.Generator().manual_seed(1))
    codes = autoencoder.encode(x)
    for k in range(autoencoder.length + 1):
        trained = autoencoder(x, torch.full((2,), k))
        assert torch.equal(trained.quantized.codes, codes)
        torch.testing.assert_close(trained.x, autoencoder.decode(codes[:, :k]), atol=1e-5, rtol=1e-5)


def test_a_model_decodes_its_samples(model: AnytimeModel) -> None:
    for k in range(1, model.length + 1):
        sample = model.sample(3, seed=5, codes=k)
        assert sample.data.shape == (3, *model.config.autoencoder.shape)
        assert torch.equal(sample.data, model.decode(sample.codes))
    assert model.decode(torch.empty(3, 0, dtype=torch.long)).shape == (3, *model.config.autoencoder.shape)
