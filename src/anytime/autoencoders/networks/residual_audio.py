"""Our audio networks (recipe best): strided convolutions with residual blocks at every resolution.

There is no dense layer: a code already covers all positions of the feature map. The decoder has a ninth of the weights of the
paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from anytime.autoencoders.networks.conv_audio import OUTPUT_GAIN, SLOPE, he_init, padding, upsample_conv


class AudioResidualBlock(nn.Module):
    """x + W₂ ρ(W₁ ρ(x)), W₁ with kernel 3 and a dilation, W₂ with kernel 1; initialised as the identity."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        last = nn.Conv1d(width, width, 1)
        nn.init.zeros_(last.weight)  # without norms, the output would double with every block
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        self.block = nn.Sequential(
            nn.LeakyReLU(SLOPE),
            he_init(nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)),
            nn.LeakyReLU(SLOPE),
            last,
        )

    def forward(self, x: Float[Tensor, "batch width *spatial"]) -> Float[Tensor, "batch width *spatial"]:
        """Add the residual."""
        y: Tensor = x + self.block(x)
        return y


def encoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Build the encoder, waveform to feature map; `channels` are those of the waveform, the hidden layers and the map."""
    *body, last = zip(pairwise(channels), kernels, strides, strict=True)
    layers: list[nn.Module] = []
    for (i, o), kernel, stride in body:
        layers += [he_init(nn.Conv1d(i, o, kernel, stride, padding(kernel, stride))), *_blocks(o, blocks)]
        layers.append(nn.LeakyReLU(SLOPE))
    (i, o), kernel, stride = last
    return nn.Sequential(*layers, he_init(nn.Conv1d(i, o, kernel, stride, padding(kernel, stride))))


def decoder(channels: list[int], kernels: tuple[int, ...], strides: tuple[int, ...], blocks: int) -> nn.Sequential:
    """Build the decoder, feature map to waveform in [-1, 1]: the encoder reversed, with transposed convolutions."""
    *body, last = zip(pairwise(channels[::-1]), kernels[::-1], strides[::-1], strict=True)
    layers: list[nn.Module] = []
    for (i, o), kernel, stride in body:
        layers += [upsample_conv(i, o, kernel, stride), *_blocks(o, blocks), nn.LeakyReLU(SLOPE)]
    (i, o), kernel, stride = last
    return nn.Sequential(*layers, upsample_conv(i, o, kernel, stride, OUTPUT_GAIN), nn.Tanh())


def _blocks(width: int, count: int) -> Iterator[AudioResidualBlock]:
    """Blocks with dilations 1, 3, 9, …: together they see 3^count positions."""
    return (AudioResidualBlock(width, 3**index) for index in range(count))
