"""The order-inducing objective (Eqs. 5 and 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.quantizer import Quantized
from anytime.autoencoders.truncation import keep_mask

Reduction = Literal["sum", "mean"]
"""How the terms are weighted.

`sum`: sums of squares as in Eqs. 5 and 6, all divided by the size of x.
`mean`: each term is averaged, the quantizer's over the kept codes only, as in the authors' code.
"""


@dataclass(frozen=True, slots=True)
class Losses:
    """One value per sample, [batch]."""

    total: Tensor
    reconstruction: Tensor  # mean squared error per value of x
    quantization: Tensor  # codebook and commitment terms, reduced as in the total


def squared_error(
    x: Float[Tensor, "batch ..."], y: Float[Tensor, "batch ..."], mask: Float[Tensor, "batch ..."] | None = None
) -> Float[Tensor, " batch"]:
    """Return ‖x − y‖² of each sample, over the values where `mask` is 1."""
    squares = (x - y).square()
    return (squares if mask is None else squares * mask).flatten(1).sum(1)


def vq_losses(
    x: Float[Tensor, "batch ..."],
    x_hat: Float[Tensor, "batch ..."],
    quantized: Quantized,
    keep: Int[Tensor, " batch"],
    reduction: Reduction,
    mask: Float[Tensor, "batch ..."] | None = None,
    reconstruction_weight: float = 1.0,
) -> Losses:
    """Return the bracket of Eq. 6 at i = keep; with keep = length it is Eq. 5. Truncation masks all three terms alike.

    `mask` is 0 on padding, which counts neither in the error nor in the size of x.
    """
    size = x[0].numel() if mask is None else mask.flatten(1).sum(1).clamp(min=1)
    reconstruction = squared_error(x, x_hat, mask) / size
    length, dim = quantized.latents.shape[1:]
    quantization = (quantized.loss * keep_mask(keep, length)).sum(1)
    quantization = quantization / (size if reduction == "sum" else keep * dim)
    return Losses(reconstruction_weight * reconstruction + quantization, reconstruction, quantization)
