"""Linear layers with weights packed once for the processor, in fp32 or bf16."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

PACKED = (
    *("_reorder_linear_weight", "_linear_pointwise", "_reorder_convolution_weight", "_convolution_pointwise"),
    *("_reorder_convolution_transpose_weight", "_convolution_transpose_pointwise"),
)
"""torch's operations with packed weights; they are not part of its documented interface."""


def has_onednn() -> bool:
    """Return whether this torch has oneDNN's operations with packed weights; without them, weights stay as they are."""
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in PACKED)


def has_bf16() -> bool:
    """Return whether this processor multiplies bf16 in hardware."""
    return has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def padded_rows(rows: int) -> int:
    """Return the number of rows to compute for `rows`, of which few different ones exist.

    oneDNN keeps half a megabyte for each product and number of rows: multiples of 4 above 16 rows, of 8 above 128, and so on.
    """
    multiple = 1 if rows <= 16 else max(4, (1 << (rows - 1).bit_length()) // 32)
    return -(-rows // multiple) * multiple


class PackedLinear:
    """x Wᵀ + b. Inputs and outputs are float32; with bf16 weights, inputs are rounded to bf16 and products are too."""

    def __init__(self, weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None, dtype: torch.dtype) -> None:
        self.dtype, self.is_packed = dtype, has_onednn()
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        if self.is_packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight)

    def __call__(self, x: Float[Tensor, "rows in"]) -> Float[Tensor, "rows out"]:
        return self._product(x, "none").float()

    def relu(self, x: Float[Tensor, "rows in"]) -> Float[Tensor, "rows out"]:
        """Return max(x Wᵀ + b, 0) in the precision of the weights: the input of the next layer."""
        return self._product(x, "relu")

    def add(self, x: Float[Tensor, "rows in"], residual: Float[Tensor, "rows out"]) -> Float[Tensor, "rows out"]:
        """Return x Wᵀ + b + residual."""
        if self.is_packed and self.dtype is torch.float32:
            found: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")
            return found
        return self._product(x, "none") + residual

    def _product(self, x: Tensor, activation: str) -> Tensor:
        x = x.to(self.dtype)
        if self.is_packed:
            found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, activation, [], "")
            return found
        found = F.linear(x, self.weight, self.bias)
        return found.relu_() if activation == "relu" else found
