"""Parts of the experiments' figures: curves, and strips of images kept as PNG text."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from anytime.core.results import Row, curve
from anytime.data.image_grid import grid, png_bytes


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure; the size is in inches."""
    import matplotlib.figure

    return matplotlib.figure.Figure(figsize=(width, height), layout="constrained")


def plot_curve(
    axes: Any, rows: Sequence[Row], series: str, across: str, value: str, style: str = "-", label: str = "", **options: Any
) -> None:
    """Plot the mean over the seeds of one series."""
    points = curve(rows, series, across, value)
    axes.plot(list(points), list(points.values()), style, label=label or series, **options)


def encode_strip(x: Float[Tensor, "n channel *place"], columns: int | None = None) -> str:
    """Return images, or the spectrograms of audio, as one PNG in base64. By default all are side by side."""
    return base64.b64encode(png_bytes(grid(x, columns=columns or len(x)))).decode()


def show_strip(axes: Any, png: str, title: str) -> None:
    """Draw what `encode_strip` returned on matplotlib axes."""
    import matplotlib.image

    axes.imshow(matplotlib.image.imread(io.BytesIO(base64.b64decode(png)), format="png"), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, fontsize="small")
    axes.set_axis_off()
