"""The paper's image networks: strided convolutions and their transposes (Appendix E.1).

The original VQ-VAE, the paper's baseline, adds residual blocks on the feature map.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anytime.core import distributed

PADDING = 1


class BatchNorm2d(nn.BatchNorm2d):
    """Batch norm over the global batch of all ranks, on a CPU too, which torch's SyncBatchNorm refuses.

    With one rank it is exactly `nn.BatchNorm2d`.
    """

    def forward(self, input: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch channel height width"]:  # noqa: A002
        """Normalise with the moments of the global batch in training."""
        if not self.training or distributed.world_size() == 1:
            return super().forward(input)
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        x = input.float()
        count = x.numel() // x.shape[1] * distributed.world_size()
        mean = distributed.all_reduce_sum_with_grad(x.sum((0, 2, 3))) / count
        # Two passes: E[x²] − E[x]² would lose precision if the mean is far from zero.
        centred = x - mean[:, None, None]
        variance = distributed.all_reduce_sum_with_grad(centred.square().sum((0, 2, 3))) / count
        with torch.no_grad():
            momentum = self.momentum if self.momentum is not None else 0.1
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1), momentum)
            self.num_batches_tracked += 1
        scale = self.weight * (variance + self.eps).rsqrt()
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(input.dtype)


def xavier_init(layer: nn.Module) -> nn.Module:
    """Initialise the weights by Xavier's rule and the bias to 0."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return layer


def _stack(convolutions: list[nn.Module], widths: list[int]) -> Iterator[nn.Module]:
    """Convolutions with batch norm and ReLU between them, none after the last."""
    for layer, width in zip(convolutions, [*widths, None], strict=True):
        yield xavier_init(layer)
        if width is not None:
            yield BatchNorm2d(width)
            yield nn.ReLU()


def biases(layers: int) -> list[bool]:
    """Return which convolutions have a bias: the last one. The batch norm after the others would cancel it.

    Its gradient would be rounding noise, which Adam scales to full steps: two processes would diverge from one.
    """
    return [False] * (layers - 1) + [True]


class BatchNormResidualBlock(nn.Module):
    """x + BN(1 × 1(ReLU(BN(3 × 3(ReLU(x)))))), twice as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.ReLU(),
            xavier_init(nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)),
            BatchNorm2d(2 * width),
            nn.ReLU(),
            xavier_init(nn.Conv2d(2 * width, width, 1, bias=False)),
            BatchNorm2d(width),
        )

    def forward(self, x: Float[Tensor, "batch width height wide"]) -> Float[Tensor, "batch width height wide"]:
        """Add the residual."""
        y: Tensor = x + self.block(x)
        return y


def encoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int = 0) -> nn.Sequential:
    """Build the encoder, image to feature map; `channels` are those of the image, the hidden layers and the map."""
    pairs = list(pairwise(channels))
    layers: list[nn.Module] = [
        nn.Conv2d(i, o, k, s, PADDING, bias=has_bias)
        for (i, o), k, s, has_bias in zip(pairs, kernels, strides, biases(len(pairs)), strict=True)
    ]
    return nn.Sequential(*_stack(layers, channels[1:-1]), *(BatchNormResidualBlock(channels[-1]) for _ in range(blocks)))


def decoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int = 0) -> nn.Sequential:
    """Build the decoder, feature map to image in [0, 1]: the encoder reversed, with transposed convolutions."""
    back = channels[::-1]
    pairs = list(pairwise(back))
    layers: list[nn.Module] = [
        nn.ConvTranspose2d(i, o, k, s, PADDING, bias=has_bias)
        for (i, o), k, s, has_bias in zip(pairs, kernels[::-1], strides[::-1], biases(len(pairs)), strict=True)
    ]
    residual = [*(BatchNormResidualBlock(back[0]) for _ in range(blocks)), nn.ReLU()] if blocks else []
    return nn.Sequential(*residual, *_stack(layers, back[1:-1]), nn.Sigmoid())


def map_size(size: int, kernels: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the height (or width) of the feature map of an image of that height."""
    for kernel, stride in zip(kernels, strides, strict=True):
        size = (size + 2 * PADDING - kernel) // stride + 1
    return size


def image_size(size: int, kernels: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the height (or width) of the image decoded from a feature map of that height."""
    for kernel, stride in zip(kernels[::-1], strides[::-1], strict=True):
        size = (size - 1) * stride - 2 * PADDING + kernel
    return size
