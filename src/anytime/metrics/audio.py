"""How far reconstructed sounds are from the originals, by code length: log-mel, multi-resolution STFT, error by frequency band.

All of them leave out the padding of short recordings: samples are silenced there in both sounds, and frames centred there do
not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from anytime.autoencoders.losses import squared_error
from anytime.data.audio_io import SAMPLE_RATE
from anytime.data.loader import to_float
from anytime.data.recordings import is_valid_sample
from anytime.data.spectrogram import HOP, log_mel, magnitudes
from anytime.metrics.code_stats import ProgressCallback
from anytime.metrics.quality import Row
from anytime.metrics.stft_distance import frame_mask, masked_mean, stft_distance
from anytime.model import AnytimeModel

BATCH = 100
BANDS = {"low": (0, 500), "middle": (500, 2000), "high": (2000, SAMPLE_RATE // 2 + 1)}
"""Hertz: pitch and first formant; the vowels' upper formants; consonants. The upper edge belongs to the next band."""

AudioBatch = Float[Tensor, "batch channel time"]


def log_mel_distance(x: AudioBatch, y: AudioBatch, mask: AudioBatch) -> Float[Tensor, " batch"]:
    """Mean |log mel(x) − log mel(y)| over the frames of each sound, in nats."""
    difference = (log_mel(x * mask) - log_mel(y * mask)).abs().mean(1)
    return masked_mean(difference, frame_mask(mask, HOP))


def band_errors(x: AudioBatch, y: AudioBatch, mask: AudioBatch) -> Float[Tensor, "batch bands"]:
    """Σ (|X| − |Y|)² of the short-time magnitudes in the low, the middle and the high band.

    Magnitudes, as phases are hardly heard: a vowel whose overtones are all there is not wrong because they begin elsewhere.
    """
    frames = frame_mask(mask, HOP)[:, None]
    difference = ((magnitudes(x * mask) - magnitudes(y * mask)) * frames).double().square().sum(2)
    frequency = torch.linspace(0, SAMPLE_RATE / 2, difference.shape[1], device=x.device)
    return torch.stack([difference[:, (frequency >= low) & (frequency < high)].sum(1) for low, high in BANDS.values()], dim=1)


@torch.no_grad()
def reconstruction_error_rows(
    model: AnytimeModel, x: Int16[Tensor, "n 1 time"], counts: Sequence[int], progress: ProgressCallback | None = None
) -> list[Row]:
    """For each number of codes: `log_mel`, `stft`, mean squared `error`, and the magnitudes' error by band.

    A band's is Σ (|X| − |X̂|)² / Σ |X|², both summed over all sounds: 1 is as good as silence.
    """
    sums = torch.zeros(len(counts), 3 + len(BANDS), dtype=torch.float64)
    energy, values = torch.zeros(len(BANDS), dtype=torch.float64), 0.0
    for start in range(0, len(x), BATCH):
        part = x[start : start + BATCH].to(model.device)
        waves, mask = to_float(part), is_valid_sample(part)
        energy += band_errors(waves, torch.zeros_like(waves), mask).sum(0).cpu()
        values += float(mask.sum(dtype=torch.float64))
        codes = model.encode(waves)
        for row, count in enumerate(counts):
            sums[row] += _distances(waves, model.decode(codes[:, :count]), mask)
        if progress is not None:
            progress(start + len(part))
    size = torch.cat([torch.tensor([len(x), len(x), max(1.0, values)]), energy.clamp(min=1e-12)])
    names = ("log_mel", "stft", "error", *BANDS)
    return [
        {
            "series": "error",
            "codes": count,
            "fraction": count / model.length,
            **dict(zip(names, row_values, strict=True)),
            "examples": len(x),
        }
        for count, row_values in zip(counts, (sums / size).tolist(), strict=True)
    ]


def _distances(x: AudioBatch, y: AudioBatch, mask: AudioBatch) -> Float[Tensor, " numbers"]:
    totals = [f(x, y, mask).double().sum()[None] for f in (log_mel_distance, stft_distance, squared_error)]
    return torch.cat([*totals, band_errors(x, y, mask).sum(0)]).cpu()


def codes_to_half_error(errors: Sequence[float]) -> int | None:
    """The first number of codes at which half of the error that there is without codes is gone; None where it never is.

    Low frequencies come first where the low band's is the smallest. Half of the error, not of the drop: a band that hardly gets
    better makes half of its little way at once.

    >>> codes_to_half_error([1.0, 0.9, 0.4, 0.2]), codes_to_half_error([1.0, 0.9])
    (2, None)
    """
    return next((count for count, error in enumerate(errors) if error <= errors[0] / 2), None)
