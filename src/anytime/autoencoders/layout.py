"""Which axis of a feature map becomes the sequence of codes (Section 4.3, Fig. 2a).

Channel-wise: one code per channel, its embedding spread over all places, so that a prefix can carry the whole picture.
Spatial-wise: one code per place, its embedding made of the channels, so that a prefix carries the top rows only.
"""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Float
from torch import Tensor

Layout = Literal["channel", "spatial"]


def to_latents(features: Float[Tensor, "batch channel *place"], layout: Layout) -> Float[Tensor, "batch length dim"]:
    """A feature map as a sequence of latent vectors."""
    flat = features.flatten(2)
    return flat if layout == "channel" else flat.transpose(1, 2)


def to_features(
    latents: Float[Tensor, "batch length dim"], layout: Layout, spatial_shape: tuple[int, ...]
) -> Float[Tensor, "batch channel *place"]:
    """The inverse of `to_latents`, for a map of the spatial shape `places`."""
    flat = latents if layout == "channel" else latents.transpose(1, 2)
    features: Tensor = flat.unflatten(2, spatial_shape)
    return features


def code_shape(channels: int, spatial_shape: tuple[int, ...], layout: Layout) -> tuple[int, int]:
    """(length, dim) of the sequence that a map of `channels` and `places` gives."""
    area = math.prod(spatial_shape)
    return (channels, area) if layout == "channel" else (area, channels)
