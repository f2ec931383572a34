"""Quantised weights, the format of the bundled models: bfloat16, or int8 with a scale per row; float32 when read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from anytime.core.errors import UserError

FILE_KIND = "packed 1"
"""Metadata of a file with quantised weights; other files are read as they are. The headers of the bundled files hold this
string, so it stays."""
SCALE_PREFIX = "scale/"  # of a scale's name; parameter names have no slash
INT8_MAX = 127

WeightFormat = Literal["fp32", "bf16", "int8"]


def quantize_weights(tensors: Mapping[str, Tensor], choose: Callable[[str, Tensor], WeightFormat]) -> dict[str, Tensor]:
    """Convert every tensor to the format that `choose` returns for it."""
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
    """Convert quantised weights to float32, with the same result on every machine."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith(SCALE_PREFIX):
            continue
        if tensor.dtype == torch.int8:
            scale = tensors.get(SCALE_PREFIX + name)
            if scale is None or scale.shape != tensor.shape[:1]:
                raise UserError(f"the quantised tensor {name} needs a scale for each of its rows; export the bundle again")
            result[name] = tensor.float() * scale.view(-1, *[1] * (tensor.ndim - 1))
        else:
            result[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return result


def quantize_rows(matrix: Float[Tensor, "rows *rest"]) -> tuple[Int8[Tensor, "rows *rest"], Float[Tensor, " rows"]]:
    """Round each entry to the nearest of 255 evenly spaced values within ± its row's maximum; return these and the spacing."""
    flat = matrix.detach().float().flatten(1)
    scale = flat.abs().amax(1) / INT8_MAX
    steps = (flat / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None]).round().clamp(-INT8_MAX, INT8_MAX)
    return steps.to(torch.int8).view(matrix.shape), scale
