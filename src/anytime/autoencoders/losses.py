"""The order-inducing objective (Eqs. 5 and 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.quantizer import Quantized
from anytime.autoencoders.truncation import keep_mask, truncate
from anytime.autoencoders.vqvae import VQVAE

Reduction = Literal["sum", "mean"]
"""How the terms weigh against each other.

`sum`: sums of squares as Eqs. 5 and 6 print them, all divided by the size of x.
`mean`: each term averaged on its own, the quantizer's over the kept rows only, as the authors' code does.
"""


@dataclass(frozen=True, slots=True)
class Losses:
    """One number per sample, [batch]."""

    total: Tensor
    reconstruction: Tensor  # mean squared error per value of x
    quantization: Tensor  # codebook and commitment terms, reduced as in the total


def squared_error(
    x: Float[Tensor, "batch ..."], y: Float[Tensor, "batch ..."], mask: Float[Tensor, "batch ..."] | None = None
) -> Float[Tensor, " batch"]:
    """‖x − y‖² of each sample, where `mask` is 1."""
    squares = (x - y).square()
    return (squares if mask is None else squares * mask).flatten(1).sum(1)


def vq_losses(
    x: Float[Tensor, "batch ..."],
    x_hat: Float[Tensor, "batch ..."],
    quantized: Quantized,
    keep: Int[Tensor, " batch"],
    reduction: Reduction = "sum",
    mask: Float[Tensor, "batch ..."] | None = None,
    reconstruction_weight: float = 1.0,
) -> Losses:
    """The bracket of Eq. 6 at i = keep; with keep = length it is Eq. 5. Truncation masks all three terms alike.

    Where `mask` is 0 there is padding, which is no data: it counts neither in the error nor in the size of x. `error` weighs
    the reconstruction in the total.
    """
    size = x[0].numel() if mask is None else mask.flatten(1).sum(1).clamp(min=1)
    reconstruction = squared_error(x, x_hat, mask) / size
    length, dim = quantized.latents.shape[1:]
    quantization = (quantized.loss * keep_mask(keep, length)).sum(1)
    quantization = quantization / (size if reduction == "sum" else keep * dim)
    return Losses(reconstruction_weight * reconstruction + quantization, reconstruction, quantization)


def exact_ordered_losses(model: VQVAE, x: Float[Tensor, "batch channel *place"], reduction: Reduction = "sum") -> Losses:
    """Eq. 6 without sampling: the mean over every truncation 1..length. Costs `length` decodes."""
    quantized = model.quantizer(model.latents(x))
    terms = []
    for i in range(1, model.length + 1):
        keep = torch.full((len(x),), i, device=x.device)
        terms.append(vq_losses(x, model.decode_latents(truncate(quantized.latents, keep)), quantized, keep, reduction))
    total, reconstruction, quantization = (
        torch.stack([getattr(t, name) for t in terms]).mean(0) for name in ("total", "reconstruction", "quantization")
    )
    return Losses(total, reconstruction, quantization)
