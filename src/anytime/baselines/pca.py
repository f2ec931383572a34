"""Principal component analysis: the linear ordered code that the paper generalises."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

BATCH = 5000


@dataclass(frozen=True, slots=True)
class PCA:
    """Mean and principal components of a dataset."""

    mean: Tensor  # [size], float64
    components: Tensor  # [size, length], orthonormal columns, largest variance first

    @property
    def length(self) -> int:
        """Number of components."""
        return self.components.shape[1]

    def encode(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch length"]:
        """Return continuous codes, most important first."""
        return (x.flatten(1).double() - self.mean) @ self.components

    def decode(self, latents: Float[Tensor, "batch prefix"]) -> Float[Tensor, "batch size"]:
        """Decode a prefix of the codes to flat data; missing codes are zero."""
        return self.mean + latents @ self.components[:, : latents.shape[1]].T


def fit(x: Shaped[Tensor, "n ..."], length: int) -> PCA:
    """Fit the first `length` principal components; bytes count as pixels in [0, 1]."""
    parts = x.flatten(1).split(BATCH)
    scale = 255 if x.dtype == torch.uint8 else 1
    zeros = torch.zeros(x[0].numel(), dtype=torch.float64, device=x.device)
    mean = sum((part.double().sum(0) for part in parts), start=zeros) / scale / len(x)
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=x.device)
    for part in parts:  # in parts: as float64, bytes take eight times the memory
        centred = part.double() / scale - mean
        covariance += centred.T @ centred
    vectors = torch.linalg.eigh(covariance / len(x)).eigenvectors
    return PCA(mean, vectors.flip(1)[:, :length].contiguous())
