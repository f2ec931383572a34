"""The cuda engine's decoder, on a CPU: rows so many that nothing is captured."""

from __future__ import annotations

import pytest
import torch

from anytime.autoencoders.residual_image import ResidualBlock
from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling.chain import linked
from anytime.sampling.cuda_decoder import CAPTURED, Decoder
from anytime.training.recipes import recipe, scaled

TOLERANCE = 1e-5


@pytest.mark.parametrize(
    ("name", "shape", "which", "links"),
    [
        ("cifar10", (3, 32, 32), "paper", 4),
        (
            "cifar10",
            (3, 32, 32),
            "best",
            16,
        ),  # four convolutions, and two blocks of two behind all but the last
        ("mnist", (1, 28, 28), "best", 11),
        ("cifar10", (3, 32, 32), "original", None),  # its blocks are of another kind
        ("audiomnist", (1, 15_360), "paper", None),
        ("audiomnist", (1, 15_360), "best", None),
    ],
)
@torch.no_grad()
def test_it_decodes_as_the_autoencoder_does(name: str, shape: tuple[int, ...], which: str, links: int | None) -> None:
    torch.manual_seed(0)
    autoencoder = VQVAE(scaled(recipe(name, which, shape), "smoke").model.autoencoder).eval()  # type: ignore[arg-type]
    for weights in autoencoder.decoder.parameters():
        weights.normal_(std=0.2)  # blocks begin as the identity, and biases as nothing
    torch.nn.init.normal_(autoencoder.quantizer.codebook)
    codes = torch.randint(len(autoencoder.quantizer.codebook), (CAPTURED + 1, autoencoder.length - 1))
    decoder = Decoder(autoencoder, torch.float32)
    assert links == (None if decoder.links is None else len(decoder.links))
    x = decoder(codes)
    assert x.shape == (CAPTURED + 1, *shape)
    assert x.std(0).mean() > 100 * TOLERANCE, "codes matter"
    torch.testing.assert_close(x, autoencoder.decode(codes), atol=TOLERANCE, rtol=0)


def test_what_is_no_chain() -> None:
    """Nothing is taken off a network that is not one: it goes on by its own layers."""
    convolution, relu = torch.nn.Conv2d(2, 2, 1), torch.nn.ReLU()
    for layers in (
        [convolution],
        [relu, convolution, relu],
        [convolution, relu, relu],
        [convolution, torch.nn.Tanh()],
        [ResidualBlock(2), relu],
        [convolution, relu, ResidualBlock(2), relu],
        [convolution, ResidualBlock(2)],
    ):
        assert linked(torch.nn.Sequential(*layers)) is None
        assert convolution.bias is not None
    found = linked(torch.nn.Sequential(convolution, ResidualBlock(2), torch.nn.Sigmoid()))
    assert found is not None and [(link.activation, link.joins, link.keeps) for link in found] == [
        ("silu", False, True), ("silu", False, False), ("sigmoid", True, False),
    ]  # fmt: skip
