"""The cuda engine's decoder, on a CPU: rows so many that nothing is captured."""

from __future__ import annotations

import pytest
import torch

from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling.cuda_decoder import CAPTURED, Decoder
from anytime.training.recipes import recipe, scaled

TOLERANCE = 1e-5


@pytest.mark.parametrize("which", ["paper", "best"])
@pytest.mark.parametrize(("name", "shape"), [("cifar10", (3, 32, 32)), ("audiomnist", (1, 15_360))])
@torch.no_grad()
def test_it_decodes_as_the_autoencoder_does(name: str, shape: tuple[int, ...], which: str) -> None:
    torch.manual_seed(0)
    autoencoder = VQVAE(scaled(recipe(name, which, shape), "smoke").model.autoencoder).eval()  # type: ignore[arg-type]
    for weights in autoencoder.decoder.parameters():
        weights.normal_(std=0.2)  # blocks begin as the identity, and biases as nothing
    torch.nn.init.normal_(autoencoder.quantizer.codebook)
    codes = torch.randint(len(autoencoder.quantizer.codebook), (CAPTURED + 1, autoencoder.length - 1))
    x = Decoder(autoencoder, torch.float32)(codes)
    assert x.shape == (CAPTURED + 1, *shape)
    assert x.std(0).mean() > 100 * TOLERANCE, "codes matter"
    torch.testing.assert_close(x, autoencoder.decode(codes), atol=TOLERANCE, rtol=0)
