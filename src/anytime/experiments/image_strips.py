"""Pictures inside results files, as PNG in text: figures are drawn from those files alone."""

from __future__ import annotations

import base64
import io
from typing import Any

from jaxtyping import Float
from torch import Tensor

from anytime.data.image_grid import grid, png_bytes


def strip(x: Float[Tensor, "n channel *place"], columns: int | None = None) -> str:
    """Pictures, or the spectrograms of sounds, in rows of `columns`, side by side if that is not said."""
    return base64.b64encode(png_bytes(grid(x, columns=columns or len(x)))).decode()


def show(axes: Any, png: str, title: str) -> None:
    """Draw what `strip` made on matplotlib axes."""
    import matplotlib.image

    axes.imshow(matplotlib.image.imread(io.BytesIO(base64.b64decode(png)), format="png"), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, fontsize="small")
    axes.set_axis_off()
