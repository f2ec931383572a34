"""Rows of an image grid by number of codes, while a model trains."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

GRID_FRACTIONS = (0.25, 0.5, 0.75, 1.0)


def code_rows(model: AnytimeModel, codes: Int[Tensor, "n length"]) -> list[tuple[str, Tensor]]:
    """Decode a quarter, a half, three quarters and all of the codes, with labels."""
    counts = [code_count(model.length, fraction=f) for f in GRID_FRACTIONS]
    return [(f"{k} of {model.length} codes", model.decode(codes[:, :k]).cpu()) for k in counts]
