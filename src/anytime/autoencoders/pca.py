"""Principal components: the ordered code that the paper generalises, and the yardstick beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PCA:
    mean: Tensor  # [size], float64
    components: Tensor  # [size, length], orthonormal columns, largest variance first

    @property
    def length(self) -> int:
        return self.components.shape[1]

    def encode(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch length"]:
        """Continuous codes, most important first."""
        return (x.flatten(1).double() - self.mean) @ self.components

    def decode(self, latents: Float[Tensor, "batch prefix"]) -> Float[Tensor, "batch size"]:
        """The flattened data that a prefix of the codes stands for; missing codes are zero."""
        return self.mean + latents @ self.components[:, : latents.shape[1]].T


def fit(batches: list[Float[Tensor, "batch ..."]], length: int) -> PCA:
    """The first `length` principal components of the concatenated batches."""
    flat = [b.flatten(1).double() for b in batches]
    count = sum(len(b) for b in flat)
    mean = torch.stack([b.sum(0) for b in flat]).sum(0) / count
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=mean.device)
    for batch in flat:
        centred = batch - mean
        covariance += centred.T @ centred
    vectors = torch.linalg.eigh(covariance / count).eigenvectors
    return PCA(mean, vectors.flip(1)[:, :length].contiguous())
