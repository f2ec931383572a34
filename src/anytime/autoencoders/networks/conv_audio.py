"""The paper's audio networks (Appendices B and E.1): strided convolutions over time, and the generator of WaveGAN.

Encoder: 5 convolutions, kernel 25, stride 4, LeakyReLU 0.2: 15,360 samples become 15,360 / 4⁵ = 15 positions.
Decoder: a dense layer, then four layers that upsample by 4 (60 · 4⁴ = 15,360), ReLU between them, Tanh at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from torch import nn

SLOPE = 0.2
OUTPUT_GAIN = 0.1
"""Output scale of a new decoder, relative to its input: silence is closer to any clip than noise is."""


def encoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...]) -> nn.Sequential:
    """Build the encoder, waveform to feature map; `channels` are those of the waveform, the hidden layers and the map."""
    layers: list[nn.Module] = []
    for (i, o), kernel, stride in zip(pairwise(channels), kernels, strides, strict=True):
        layers += [he_init(nn.Conv1d(i, o, kernel, stride, padding(kernel, stride))), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers[:-1])


def decoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], map_length: int) -> nn.Sequential:
    """Build the decoder, feature map to waveform in [-1, 1].

    The encoder reversed, with a dense first layer as in WaveGAN, so that every code reaches every position.
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
    """Return a transposed convolution that multiplies the length by exactly `stride`."""
    pad = padding(kernel, stride)
    extra = stride + 2 * pad - kernel
    return he_init(nn.ConvTranspose1d(inputs, outputs, kernel, stride, pad, output_padding=extra), gain)


def padding(kernel: int, stride: int) -> int:
    """Return the padding that divides the length by exactly `stride`."""
    return (kernel - stride + 1) // 2


def map_size(time: int, kernels: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the length of the feature map of a waveform of `time` samples."""
    for kernel, stride in zip(kernels, strides, strict=True):
        time = (time + 2 * padding(kernel, stride) - kernel) // stride + 1
    return time


def he_init(layer: nn.Module, gain: float = 1.0) -> nn.Module:
    """Initialise by He's rule, with the number of inputs that reach one output, so that activations keep their scale.

    Only every `stride`-th tap of a transposed convolution reaches an output. With Xavier's rule, ten layers would scale a
    waveform by less than 1/1000, latents and codebook would shrink together, and training would stall.
    """
    assert isinstance(layer, nn.Conv1d | nn.ConvTranspose1d | nn.Linear)
    inputs: float = layer.weight[0].numel()
    if isinstance(layer, nn.ConvTranspose1d):
        inputs = layer.in_channels * layer.kernel_size[0] / layer.stride[0]
    nn.init.normal_(layer.weight, std=gain * math.sqrt(2 / (1 + SLOPE**2) / inputs))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
