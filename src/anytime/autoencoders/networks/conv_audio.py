"""The audio networks (Appendices B and E.1): strided convolutions over time, and the generator of WaveGAN.

Encoder: 5 convolutions, 25 wide, stride 4, LeakyReLU 0.2: 15,360 samples become 15,360 / 4⁵ = 15 places.
Decoder: a dense layer from all codes to the first of four layers that upsample by 4 (60 · 4⁴ = 15,360), ReLU between, Tanh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from torch import nn

SLOPE = 0.2
OUTPUT_GAIN = 0.1
"""Size of what a fresh decoder says, where 1 is that of what it is given: silence is nearer to any sound than noise is."""


def encoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...]) -> nn.Sequential:
    """Waveform to feature map; `channels` runs from the waveform's to the map's."""
    layers: list[nn.Module] = []
    for (i, o), kernel, stride in zip(pairwise(channels), kernels, strides, strict=True):
        layers += [he_init(nn.Conv1d(i, o, kernel, stride, padding(kernel, stride))), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers[:-1])


def decoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], map_length: int) -> nn.Sequential:
    """Feature map to waveform in [-1, 1].

    The encoder read backwards, but for its last layer: a dense one stands there, as WaveGAN begins, so that every code
    reaches every place.
    """
    back, start = channels[::-1], map_length * strides[-1]
    return nn.Sequential(
        nn.Flatten(),
        he_init(nn.Linear(back[0] * map_length, back[1] * start)),
        nn.Unflatten(1, (back[1], start)),
        nn.ReLU(),
        *_upsample_layers(back[1:], kernels[-2::-1], strides[-2::-1]),
        nn.Tanh(),
    )


def _upsample_layers(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...]) -> Iterator[nn.Module]:
    *body, last = zip(pairwise(channels), kernels, strides, strict=True)
    for (i, o), kernel, stride in body:
        yield from (upsample_conv(i, o, kernel, stride), nn.ReLU())
    (i, o), kernel, stride = last
    yield upsample_conv(i, o, kernel, stride, OUTPUT_GAIN)


def upsample_conv(inputs: int, outputs: int, kernel: int, stride: int, gain: float = 1.0) -> nn.Module:
    """A transposed convolution that makes the length exactly `stride` times as long."""
    pad = padding(kernel, stride)
    extra = stride + 2 * pad - kernel
    return he_init(nn.ConvTranspose1d(inputs, outputs, kernel, stride, pad, output_padding=extra), gain)


def padding(kernel: int, stride: int) -> int:
    """What makes the length exactly a `stride`-th."""
    return (kernel - stride + 1) // 2


def map_size(time: int, kernels: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Places of the feature map for a waveform of that many samples."""
    for kernel, stride in zip(kernels, strides, strict=True):
        time = (time + 2 * padding(kernel, stride) - kernel) // stride + 1
    return time


def he_init(layer: nn.Module, gain: float = 1.0) -> nn.Module:
    """He's weights, by the inputs that reach an output, so that what passes through fresh layers keeps its size.

    Of a transposed convolution's taps every `stride`-th alone reaches an output. With Xavier's weights ten layers in a row
    leave less than a thousandth of a sound, latents and codebook shrink together, and little is learned.
    """
    assert isinstance(layer, nn.Conv1d | nn.ConvTranspose1d | nn.Linear)
    inputs: float = layer.weight[0].numel()
    if isinstance(layer, nn.ConvTranspose1d):
        inputs = layer.in_channels * layer.kernel_size[0] / layer.stride[0]
    nn.init.normal_(layer.weight, std=gain * math.sqrt(2 / (1 + SLOPE**2) / inputs))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
