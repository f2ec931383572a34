"""Which axis of a feature map becomes the sequence of codes (Section 4.3, Fig. 2a).

Channel-wise: one code per channel. Its embedding covers the whole map, so any prefix can describe the whole image.
Spatial-wise: one code per position. Its embedding is the channels there, so a prefix describes only the top rows.
"""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Float
from torch import Tensor

Layout = Literal["channel", "spatial"]


def to_latents(features: Float[Tensor, "batch channel *spatial"], layout: Layout) -> Float[Tensor, "batch length dim"]:
    """Turn a feature map into a sequence of latent vectors."""
    flat = features.flatten(2)
    return flat if layout == "channel" else flat.transpose(1, 2)


def to_features(
    latents: Float[Tensor, "batch length dim"], layout: Layout, spatial_shape: tuple[int, ...]
) -> Float[Tensor, "batch channel *spatial"]:
    """Turn latents back into a feature map: the inverse of `to_latents`."""
    flat = latents if layout == "channel" else latents.transpose(1, 2)
    features: Tensor = flat.unflatten(2, spatial_shape)
    return features


def code_shape(channels: int, spatial_shape: tuple[int, ...], layout: Layout) -> tuple[int, int]:
    """Return (length, dim) of the sequence made from a feature map."""
    area = math.prod(spatial_shape)
    return (channels, area) if layout == "channel" else (area, channels)
