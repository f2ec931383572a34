"""Discriminators: networks that learn to tell decoded from real data. Only fine-tuning needs them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from anytime.data.spectrogram import stft
from anytime.metrics.stft_distance import RESOLUTIONS

CONDITION_CHANNELS = 2
"""Extra input channels of a conditional discriminator: the share of codes kept, and whether the prior sampled them."""
SLOPE = 0.2
_POWER_FLOOR = 1e-4  # squared magnitudes far below it are silence
_COMPRESSION = 0.35  # divide by |X|² to this power: magnitudes become their 0.3rd power, about as loud as one hears them


class DiscriminatorOutput(NamedTuple):
    """Logits, high where the data looks real, and the features they come from."""

    logits: list[Tensor]  # one map per head
    features: list[Tensor]


class AudioDiscriminator(nn.Module):
    """Convolutions over the complex short-time spectra of a waveform at three resolutions.

    Each resolution has its own convolutions, which halve the frequencies and see a growing span of time by dilation.
    """

    DEPTH = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(self._branch(width) for _ in RESOLUTIONS)

    def _branch(self, width: int) -> nn.ModuleList:
        layers: list[nn.Module] = [nn.Conv2d(2, width, (5, 3), (2, 1), (2, 1))]
        layers += [nn.Conv2d(width, width, (5, 3), (2, 1), (2, 2**depth), (1, 2**depth)) for depth in range(self.DEPTH - 1)]
        return nn.ModuleList([*layers, nn.Conv2d(width, 1, 3, padding=1)])

    # Not compiled: compiling its three passes takes longer than it saves in the few epochs of the stage.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Float[Tensor, "batch channel time"]) -> DiscriminatorOutput:
        """Return a map of logits per resolution."""
        logits, features = list[Tensor](), list[Tensor]()
        for (window, hop), branch in zip(RESOLUTIONS, self.branches, strict=True):
            assert isinstance(branch, nn.ModuleList)
            logits.append(_forward_features(branch, _compressed_spectrum(x, window, hop), features))
        return DiscriminatorOutput(logits, features)


def _compressed_spectrum(
    x: Float[Tensor, "batch channel time"], window: int, hop: int
) -> Float[Tensor, "batch 2 frequency frames"]:
    with torch.autocast(x.device.type, enabled=False):
        spectrum = stft(x.float(), window, hop)
        return (spectrum * (spectrum.square().sum(-1, keepdim=True) + _POWER_FLOOR) ** -_COMPRESSION).permute(0, 3, 1, 2)


class ImageDiscriminator(nn.Module):
    """Stride-2 convolutions down to about 8 × 8 positions, one more convolution, and a logit for each position.

    Each convolution doubles the channels. A logit sees most of the image and tells the decoder where it is wrong. The global
    head goes on to a single logit, because a few layers cannot tell whether parts fit together.
    """

    def __init__(self, width: int, channels: int, size: int, *, global_head: bool = False) -> None:
        super().__init__()
        downsamples = max(1, round(math.log2(size / 8)))
        widths = [width << level for level in range(downsamples + 1)]
        *downsampling, last_conv = pairwise([channels, *widths])
        layers: list[nn.Module] = [nn.Conv2d(i, o, 4, 2, 1) for i, o in downsampling]
        self.layers = nn.ModuleList([*layers, nn.Conv2d(*last_conv, 3, padding=1), nn.Conv2d(widths[-1], 1, 3, padding=1)])
        self.global_layers = self._global_head(widths[-1], (size >> downsamples) // 2) if global_head else None

    def _global_head(self, width: int, kernel_size: int) -> nn.ModuleList:
        downsampling, last_conv = nn.Conv2d(width, width, 4, 2, 1), nn.Conv2d(width, width, 3, padding=1)
        return nn.ModuleList([downsampling, last_conv, nn.Conv2d(width, 1, kernel_size)])

    def forward(self, x: Float[Tensor, "batch channel height width"]) -> DiscriminatorOutput:
        """Return a map of logits, and the global logit where there is such a head."""
        features: list[Tensor] = []  # the compiler does not support list[Tensor]()
        logits = [_forward_features(self.layers, 2 * x - 1, features)]
        if self.global_layers is not None:
            logits.append(_forward_features(self.global_layers, features[-1], features))
        return DiscriminatorOutput(logits, features)


def _forward_features(layers: nn.ModuleList, h: Tensor, features: list[Tensor]) -> Tensor:
    """Return the last layer's logits; append the outputs of the layers before it to `features`."""
    *body, last = layers
    for layer in body:
        h = F.leaky_relu(layer(h), SLOPE)
        features.append(h)
    logits: Tensor = last(h).float()
    return logits


def augment_for_discriminator(
    x: Float[Tensor, "batch channel height width"], uniforms: Float[Tensor, "batch 8"]
) -> Float[Tensor, "batch channel height width"]:
    """Flip images, shift them by up to an eighth, change the brightness by up to 0.5, and cut a square out of every second.

    Real and decoded images alike, so that the discriminator cannot memorise the training set. Differentiable.
    """
    n, _, height, width = x.shape
    down, right, flip, light, cut, top, left, _ = (c[:, None, None] for c in uniforms.unbind(1))
    rows = torch.arange(height, device=x.device)[:, None] + ((down - 0.5) * (height / 4)).round().long()
    columns = torch.arange(width, device=x.device) + ((right - 0.5) * (width / 4)).round().long()
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    columns = torch.where(flip > 0.5, width - 1 - columns, columns)
    row_index = torch.arange(n, device=x.device)[:, None, None]
    shifted = x.permute(0, 2, 3, 1)[row_index, rows.clamp(0, height - 1), columns.clamp(0, width - 1)].permute(0, 3, 1, 2)
    down, right = (torch.arange(side, device=x.device) / side for side in (height, width))
    erased = (cut > 0.5) & ((down[:, None] - top).abs() < 0.25) & ((right - left).abs() < 0.25)
    return (shifted + (light - 0.5)[:, None]) * (inside & ~erased)[:, None]


def no_augmentation(x: Float[Tensor, "batch *shape"], uniforms: Float[Tensor, "batch 8"]) -> Float[Tensor, "batch *shape"]:
    """Return audio unchanged: its augmentations are encoded beforehand."""
    return x
