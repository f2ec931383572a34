"""Reconstruction error by number of codes, and by image row (Section 5.1, Figs. 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.autoencoders.losses import squared_error
from anytime.data.dataset import Examples
from anytime.data.loader import to_float, valid_mask
from anytime.model import AnytimeModel

BATCH = 500

ProgressCallback = Callable[[int], None]
"""Called with the number of finished examples."""


def error_by_codes(
    model: AnytimeModel, x: Examples, counts: Sequence[int], progress: ProgressCallback | None = None
) -> list[float]:
    """Return the mean squared error per value from the first `count` codes, for each count."""
    return mean_errors(x, counts, model.encode, model.decode, model.device, progress)


@torch.no_grad()
def mean_errors(
    x: Examples,
    counts: Sequence[int],
    encode: Callable[[Float[Tensor, "batch ..."]], Tensor],
    decode: Callable[[Tensor], Float[Tensor, "batch ..."]],
    device: torch.device,
    progress: ProgressCallback | None = None,
) -> list[float]:
    """Return the mean squared error per value from the first `count` codes or latents of any encoder, for each count.

    Images are in [0, 1] and audio in [-1, 1]. Padding of short recordings does not count.
    """
    sums, values = torch.zeros(len(counts), dtype=torch.float64), 0
    for start, part in zip(range(0, len(x), BATCH), torch.split(x, BATCH), strict=True):
        part = part.to(device)
        target, mask = to_float(part), valid_mask(part)
        values += part.numel() if mask is None else int(mask.sum(dtype=torch.float64))
        codes = encode(target)
        for index, count in enumerate(counts):
            x_hat = decode(codes[:, :count]).reshape(target.shape)
            sums[index] += squared_error(target, x_hat, mask).double().sum().cpu()
        if progress is not None:
            progress(start + len(part))
    return (sums / max(1, values)).tolist()


def gains(errors: Sequence[float]) -> list[float]:
    """Return Δ(i), the error after i − 1 codes less the error after i codes, from errors at 0, 1, …, length codes.

    >>> gains([1.0, 0.5, 0.25])
    [0.5, 0.25]
    """
    return [before - after for before, after in pairwise(errors)]


@torch.no_grad()
def error_by_row(model: AnytimeModel, x: UInt8[Tensor, "n channel height width"], count: int) -> list[float]:
    """Return the mean squared error per value of each row of pixels, top first, from the first `count` codes."""
    sums = torch.zeros(x.shape[2], dtype=torch.float64)
    for part in x.split(BATCH):
        pixels = to_float(part).to(model.device)
        x_hat = model.decode(model.encode(pixels)[:, :count])
        sums += (pixels - x_hat).square().double().sum((0, 1, 3)).cpu()
    return (sums * x.shape[2] / x.numel()).tolist()
