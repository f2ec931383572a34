"""The multi-resolution STFT distance between two batches of audio."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.data.spectrogram import FLOOR, magnitudes

RESOLUTIONS = ((512, 128), (1024, 256), (2048, 512))
"""Windows and hops, in samples."""


def stft_distance(
    x: Float[Tensor, "batch channel time"],
    y: Float[Tensor, "batch channel time"],
    mask: Float[Tensor, "batch channel time"],
    floor: float = FLOOR,
) -> Float[Tensor, " batch"]:
    """Return the mean over three resolutions of ‖|X| − |Y|‖ / ‖|X|‖ + mean |log |X| − log |Y||, with X and Y the STFTs.

    Where `mask` is 0 both signals are silenced, and frames centred there do not count. Magnitudes are clamped at `floor`.
    """
    terms = []
    for window, hop in RESOLUTIONS:
        valid = frame_mask(mask, hop)
        first, second = (magnitudes(w * mask, window, hop) * valid[:, None] for w in (x, y))
        convergence = (first - second).norm(dim=(1, 2)) / first.norm(dim=(1, 2)).clamp(min=FLOOR)
        logs = (first.clamp(min=floor).log() - second.clamp(min=floor).log()).abs().mean(1)
        terms.append(convergence + masked_mean(logs, valid))
    return torch.stack(terms).mean(0)


def frame_mask(mask: Float[Tensor, "batch channel time"], hop: int) -> Float[Tensor, "batch frames"]:
    """Return 1 for every frame centred on a valid sample; the frame past the end has none."""
    centres = mask[:, 0, ::hop]
    return torch.cat([centres, centres.new_zeros(len(mask), 1 + mask.shape[-1] // hop - centres.shape[1])], dim=1)


def masked_mean(values: Float[Tensor, "batch frames"], valid: Float[Tensor, "batch frames"]) -> Float[Tensor, " batch"]:
    """Return the mean of each row where `valid` is 1."""
    return (values * valid).sum(1) / valid.sum(1).clamp(min=1)
