"""Whole numbers as people have them: lists, NumPy arrays and tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Integer, Shaped
from torch import Tensor

from anytime.core.errors import UserError

Integers = Integer[Tensor, "*shape"] | Integer[np.ndarray, "*shape"] | Sequence[int] | Sequence[Sequence[int]]
"""Whole numbers in one row or several, as a tensor, a NumPy array or lists."""


def to_tensor(values: Integers, name: str) -> Integer[Tensor, "*shape"]:
    """Return whole numbers as a tensor; refuse anything else.

    >>> to_tensor([[3, 1], [2, 0]], "`prefix`").tolist()
    [[3, 1], [2, 0]]
    """
    if isinstance(values, Tensor):
        is_whole = values.dtype != torch.bool and not values.is_floating_point() and not values.is_complex()
        found: Shaped[Tensor, "..."] = values
    else:
        array = _array(values, name)
        is_whole = array.dtype.kind in "iu" or not array.size
        found = torch.from_numpy(array.astype(np.int64)) if is_whole else torch.empty(0)
    if not is_whole:
        raise UserError(f"{name} must be integers, not {_shortened(values)}")
    return found


def prefix_codes(prefix: Integers, name: str) -> Integer[Tensor, "given k"]:
    """Return the codes of a prefix, [1, k] or [n, k]; a flat list begins every sample.

    >>> prefix_codes([3, 1], "`prefix`").tolist()
    [[3, 1]]
    """
    codes = to_tensor(prefix, name)
    if codes.ndim not in (1, 2):
        raise UserError(f"{name} must be [k] or [batch, k], not {tuple(codes.shape)}")
    return codes if codes.ndim == 2 else codes[None]


def row_numbers(rows: Integers | int, name: str) -> list[int]:
    """Return row numbers as a list; a single one is a list of one.

    >>> row_numbers(torch.tensor([3, 1]), "`pick`"), row_numbers(2, "`pick`")
    ([3, 1], [2])
    """
    found = to_tensor([rows] if isinstance(rows, int) else rows, name)
    if found.ndim > 1:
        raise UserError(f"{name} must be a list of row numbers, not {tuple(found.shape)}")
    return [int(row) for row in found.reshape(-1).tolist()]


def _array(values: object, name: str) -> Shaped[np.ndarray, "..."]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise UserError(f"{name} must be a list of equally long rows of integers, not {_shortened(values)}") from None


def _shortened(values: object) -> str:
    if isinstance(values, Tensor | np.ndarray):
        return f"{str(values.dtype).removeprefix('torch.')} {tuple(values.shape)}"
    text = repr(values)
    return text if len(text) <= 60 else f"{text[:57]}…"
