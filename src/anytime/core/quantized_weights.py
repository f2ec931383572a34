"""Weights in fewer bytes: bfloat16, or int8 with a scale for every row, expanded to float32 when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from anytime.core.errors import UserError

FILE_KIND = "packed 1"
"""Of the file's facts: without it nothing is expanded."""
SCALE_PREFIX = "scale/"  # before a tensor's name: no parameter's name has a slash
INT8_MAX = 127

WeightFormat = Literal["fp32", "bf16", "int8"]


def quantize_weights(tensors: Mapping[str, Tensor], choose: Callable[[str, Tensor], WeightFormat]) -> dict[str, Tensor]:
    """Every tensor in the format that `choose` names for it; `unpacked` gives float32 back."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match choose(name, tensor):
            case "fp32":
                result[name] = tensor
            case "bf16":
                result[name] = tensor.to(torch.bfloat16)
            case "int8":
                result[name], result[SCALE_PREFIX + name] = quantize_rows(tensor)
    return result


def dequantize_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `packed` made, expanded: products of float32 numbers, so the same on every machine."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith(SCALE_PREFIX):
            continue
        if tensor.dtype == torch.int8:
            scale = tensors.get(SCALE_PREFIX + name)
            if scale is None or scale.shape != tensor.shape[:1]:
                raise UserError(f"the packed tensor {name} has no scale for each of its rows; make the bundle again")
            result[name] = tensor.float() * scale.view(-1, *[1] * (tensor.ndim - 1))
        else:
            result[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return result


def quantize_rows(matrix: Float[Tensor, "rows *rest"]) -> tuple[Int8[Tensor, "rows *rest"], Float[Tensor, " rows"]]:
    """The nearest of 255 evenly spaced values for every entry, from minus to plus the largest of its row; and their spacing."""
    flat = matrix.detach().float().flatten(1)
    scale = flat.abs().amax(1) / INT8_MAX
    steps = (flat / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None]).round().clamp(-INT8_MAX, INT8_MAX)
    return steps.to(torch.int8).view(matrix.shape), scale
