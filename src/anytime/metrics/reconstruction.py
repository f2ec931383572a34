"""Reconstruction error of what the ordered codes are compared with, and error by place (Section 5.1, Figs. 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.autoencoders.losses import squared_error
from anytime.baselines.pca import PCA
from anytime.baselines.vae import VAE
from anytime.data.loader import to_float
from anytime.model import AnytimeModel

BATCH = 500


@torch.no_grad()
def vae_error_by_codes(vae: VAE, x: UInt8[Tensor, "n channel height width"], counts: Sequence[int]) -> list[float]:
    """Mean squared error per value of x from a VAE's mean code, `count` groups of dimensions each (Appendix C.1)."""
    sums = torch.zeros(len(counts), dtype=torch.float64)
    for part in x.split(BATCH):
        pixels = to_float(part).to(vae.device)
        latents = vae.latents(pixels)
        for index, count in enumerate(counts):
            sums[index] += squared_error(pixels, vae.decode(latents[:, :count])).double().sum().cpu()
    return (sums / x.numel()).tolist()


@torch.no_grad()
def pca_error_by_codes(pca: PCA, x: UInt8[Tensor, "n channel height width"], counts: Sequence[int]) -> list[float]:
    """Mean squared error per value of x from the first `count` principal components, real numbers each, for each count."""
    sums = torch.zeros(len(counts), dtype=torch.float64)
    for part in x.split(BATCH):
        pixels = to_float(part).to(pca.mean.device)
        latents = pca.encode(pixels)
        for index, count in enumerate(counts):
            sums[index] += squared_error(pixels.flatten(1).double(), pca.decode(latents[:, :count])).sum().cpu()
    return (sums / x.numel()).tolist()


@torch.no_grad()
def error_by_row(model: AnytimeModel, x: UInt8[Tensor, "n channel height width"], count: int) -> list[float]:
    """Mean squared error per value of each row of pixels, top first, from the first `count` codes."""
    sums = torch.zeros(x.shape[2], dtype=torch.float64)
    for part in x.split(BATCH):
        pixels = to_float(part).to(model.device)
        x_hat = model.decode(model.encode(pixels)[:, :count])
        sums += (pixels - x_hat).square().double().sum((0, 1, 3)).cpu()
    return (sums * x.shape[2] / x.numel()).tolist()
