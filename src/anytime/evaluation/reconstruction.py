"""Reconstruction error by code length, and what each code brings (Section 5.1, Fig. 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor

from anytime.autoencoders.losses import squared_error
from anytime.autoencoders.pca import PCA
from anytime.autoencoders.vae import VAE
from anytime.data.loader import mask_of, to_float
from anytime.model import AnytimeModel

BATCH = 500

Progress = Callable[[int], None]
"""Called with the number of examples done."""


@torch.no_grad()
def error_by_codes(
    model: AnytimeModel,
    x: UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n channel time"],
    counts: Sequence[int],
    progress: Progress | None = None,
) -> list[float]:
    """Mean squared error per value of x, pictures in [0, 1] and sound in [-1, 1], from the first `count` codes, for each count.

    The padding of short sounds is no value of x.
    """
    sums, values = torch.zeros(len(counts), dtype=torch.float64), 0
    for start, part in zip(range(0, len(x), BATCH), torch.split(x, BATCH), strict=True):
        pixels, mask = to_float(part).to(model.device), mask_of(part.to(model.device))
        values += part.numel() if mask is None else int(mask.sum(dtype=torch.float64))
        codes = model.encode(pixels)
        for index, count in enumerate(counts):
            sums[index] += squared_error(pixels, model.decode(codes[:, :count]), mask).double().sum().cpu()
        if progress is not None:
            progress(start + len(part))
    return (sums / max(1, values)).tolist()


@torch.no_grad()
def vae_error_by_codes(vae: VAE, x: UInt8[Tensor, "n channel height width"], counts: Sequence[int]) -> list[float]:
    """The same for a VAE's mean code, `count` groups of dimensions each (Appendix C.1)."""
    sums = torch.zeros(len(counts), dtype=torch.float64)
    for part in x.split(BATCH):
        pixels = to_float(part).to(vae.device)
        latents = vae.latents(pixels)
        for index, count in enumerate(counts):
            sums[index] += squared_error(pixels, vae.decode(latents[:, :count])).double().sum().cpu()
    return (sums / x.numel()).tolist()


@torch.no_grad()
def pca_error_by_codes(pca: PCA, x: UInt8[Tensor, "n channel height width"], counts: Sequence[int]) -> list[float]:
    """The same for principal components, `count` real numbers each."""
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


def gains(errors: Sequence[float]) -> list[float]:
    """Δ(i) = error after i − 1 codes less error after i codes, for errors at 0, 1, …, length codes.

    >>> gains([1.0, 0.5, 0.25])
    [0.5, 0.25]
    """
    return [before - after for before, after in pairwise(errors)]
