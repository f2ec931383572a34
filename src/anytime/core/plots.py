"""Matplotlib figures as PNG; matplotlib itself is the optional extra `plots`."""

from __future__ import annotations

import importlib.util
import io
from typing import Any


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def plot_png(figure: Any) -> bytes:
    """Return a matplotlib figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
