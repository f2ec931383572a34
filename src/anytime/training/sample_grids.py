"""Image grids by number of codes, and the data as codes, while a model trains."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Int, Int16, UInt8
from torch import Tensor

from anytime.data.image_grid import labelled_rows, write_png
from anytime.data.loader import to_float
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

GRID_FRACTIONS = (0.25, 0.5, 0.75, 1.0)


def code_rows(model: AnytimeModel, codes: Int[Tensor, "n length"]) -> list[tuple[str, Tensor]]:
    """Decode a quarter, a half, three quarters and all of the codes, with labels."""
    counts = [code_count(model.length, fraction=f) for f in GRID_FRACTIONS]
    return [(f"{k} of {model.length} codes", model.decode(codes[:, :k]).cpu()) for k in counts]


def write_grid(path: Path, model: AnytimeModel, x: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."] | None, n: int = 16) -> None:
    """Write reconstructions of x by number of codes, or samples if x is None."""
    if x is None:
        rows = code_rows(model, model.sample(n, seed=0).codes)
    else:
        pixels = to_float(x)
        rows = [("data", pixels.cpu()), *code_rows(model, model.encode(pixels))]
    write_png(path, labelled_rows(rows))
