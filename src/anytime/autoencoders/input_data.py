"""Checking the data that a user gives to encode."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Num
from torch import Tensor

from anytime.core.errors import UserError

TOLERANCE = 1e-4
"""How far data may be outside of its range, by rounding."""


def check_data(x: object, shape: tuple[int, ...]) -> None:
    """Refuse what is not a tensor of rows of this shape."""
    if not isinstance(x, Tensor):
        raise UserError(f"`x` must be a tensor, not {type(x).__name__}")
    if tuple(x.shape[1:]) != shape:
        rows = ", ".join(["n", *map(str, shape)])
        raise UserError(f"`x` must be ({rows}) for n rows of this model's data, not {tuple(x.shape)}")


def to_range(x: Num[Tensor, "batch channel *spatial"], is_audio: bool) -> Float[Tensor, "batch channel *spatial"]:
    """Return data as float32, in [-1, 1] for audio and in [0, 1] for images; refuse another type, NaN and values outside."""
    if x.dtype == torch.uint8 and not is_audio:
        return x.float() / 255
    lowest, kinds = (-1, "float32") if is_audio else (0, "float32 or uint8")
    if x.dtype != torch.float32:
        raise UserError(f"`x` must be {kinds}, not {str(x.dtype).removeprefix('torch.')}; convert it to float32")
    if x.numel():
        least, most = (float(value) for value in torch.aminmax(x))
        if not (least >= lowest - TOLERANCE and most <= 1 + TOLERANCE):  # NaN is refused too
            has = "it has NaN" if math.isnan(least) else f"its values are between {least:g} and {most:g}"
            raise UserError(f"`x` must be between {lowest} and 1; {has}")
    return x
