"""Audio networks of our own, for `--recipe best`: strided convolutions with residual blocks at every resolution.

No dense layer: a code is a shape over all places of the map already, and convolutions treat every moment of a sound alike.
The decoder has a ninth of the weights of the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from anytime.autoencoders.networks.conv_audio import OUTPUT_GAIN, SLOPE, he_init, padding, upsample_conv


class AudioResidualBlock(nn.Module):
    """x + W₂ ρ(W₁ ρ(x)), W₁ three taps wide that lie `dilation` apart, W₂ one; begins as the identity."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        last = nn.Conv1d(width, width, 1)
        nn.init.zeros_(last.weight)  # without norms, sums of fresh blocks would double in size with each of them
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        self.block = nn.Sequential(
            nn.LeakyReLU(SLOPE),
            he_init(nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)),
            nn.LeakyReLU(SLOPE),
            last,
        )

    def forward(self, x: Float[Tensor, "batch width *place"]) -> Float[Tensor, "batch width *place"]:
        y: Tensor = x + self.block(x)
        return y


def encoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Waveform to feature map; `channels` runs from the waveform's to the map's."""
    *body, last = zip(pairwise(channels), kernels, strides, strict=True)
    layers: list[nn.Module] = []
    for (i, o), kernel, stride in body:
        layers += [he_init(nn.Conv1d(i, o, kernel, stride, padding(kernel, stride))), *_blocks(o, blocks)]
        layers.append(nn.LeakyReLU(SLOPE))
    (i, o), kernel, stride = last
    return nn.Sequential(*layers, he_init(nn.Conv1d(i, o, kernel, stride, padding(kernel, stride))))


def decoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Feature map to waveform in [-1, 1]: the encoder read backwards, with transposed convolutions."""
    *body, last = zip(pairwise(channels[::-1]), kernels[::-1], strides[::-1], strict=True)
    layers: list[nn.Module] = []
    for (i, o), kernel, stride in body:
        layers += [upsample_conv(i, o, kernel, stride), *_blocks(o, blocks), nn.LeakyReLU(SLOPE)]
    (i, o), kernel, stride = last
    return nn.Sequential(*layers, upsample_conv(i, o, kernel, stride, OUTPUT_GAIN), nn.Tanh())


def _blocks(width: int, count: int) -> Iterator[AudioResidualBlock]:
    """Taps 1, 3, 9, … places apart: together they see 3^count places."""
    return (AudioResidualBlock(width, 3**index) for index in range(count))
