"""Our image networks (recipe best): the paper's convolutions with residual blocks at every resolution.

Batch norms follow the strided convolutions only, as in the paper. They keep latents from shrinking to zero, and engines fuse
them into the convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from anytime.autoencoders.networks.conv_image import PADDING, BatchNorm2d, biases, xavier_init


class ImageResidualBlock(nn.Module):
    """x + W₂ ρ(W₁ ρ(x)), both 3 × 3; initialised as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        last = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(last.weight)  # without norms, the output would double with every block
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        first = xavier_init(nn.Conv2d(width, width, 3, padding=1))
        self.block = nn.Sequential(nn.SiLU(), first, nn.SiLU(), last)

    def forward(self, x: Float[Tensor, "batch width height wide"]) -> Float[Tensor, "batch width height wide"]:
        """Add the residual."""
        y: Tensor = x + self.block(x)
        return y


def encoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Build the encoder, image to feature map; `channels` are those of the image, the hidden layers and the map."""
    pairs = list(pairwise(channels))
    *body, last = [
        xavier_init(nn.Conv2d(i, o, kernel, stride, PADDING, bias=has_bias))
        for (i, o), kernel, stride, has_bias in zip(pairs, kernels, strides, biases(len(pairs)), strict=True)
    ]
    return nn.Sequential(*_with_blocks(body, channels[1:-1], blocks), last)


def decoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Build the decoder, feature map to image in [0, 1]: the encoder reversed, with transposed convolutions."""
    back = channels[::-1]
    pairs = list(pairwise(back))
    *body, last = [
        xavier_init(nn.ConvTranspose2d(i, o, kernel, stride, PADDING, bias=has_bias))
        for (i, o), kernel, stride, has_bias in zip(pairs, kernels[::-1], strides[::-1], biases(len(pairs)), strict=True)
    ]
    return nn.Sequential(*_with_blocks(body, back[1:-1], blocks), last, nn.Sigmoid())


def _with_blocks(convolutions: list[nn.Module], widths: list[int], blocks: int) -> Iterator[nn.Module]:
    """Convolutions, each followed by a batch norm, residual blocks and an activation."""
    for convolution, width in zip(convolutions, widths, strict=True):
        yield convolution
        yield BatchNorm2d(width)
        yield from (ImageResidualBlock(width) for _ in range(blocks))
        yield nn.SiLU()
