"""Reconstruction error of audio by code count: log-mel distance, multi-resolution STFT distance, error by frequency band.

Padding of short recordings does not count: it is silenced in both clips, and frames centred on it are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from anytime.autoencoders.losses import squared_error
from anytime.data.audio_io import SAMPLE_RATE
from anytime.data.loader import to_float
from anytime.data.recordings import is_valid_sample
from anytime.data.spectrogram import HOP, log_mel, magnitudes
from anytime.metrics.reconstruction import ProgressCallback
from anytime.metrics.stft_distance import frame_mask, masked_mean, stft_distance
from anytime.model import AnytimeModel

BATCH = 100
BANDS = {"low": (0, 500), "middle": (500, 2000), "high": (2000, SAMPLE_RATE // 2 + 1)}
"""Hertz: pitch and first formant; the upper formants of vowels; consonants. The upper edge belongs to the next band."""

AudioBatch = Float[Tensor, "batch channel time"]


@dataclass(frozen=True, slots=True)
class AudioError:
    """Mean reconstruction error from `codes` codes."""

    codes: int
    log_mel: float  # nats
    stft: float
    error: float  # mean squared error per sample of the waveform
    low: float  # Σ (|X| − |X̂|)² / Σ |X|² of the low band, summed over all clips: 1 is as good as silence
    middle: float
    high: float


def log_mel_distance(x: AudioBatch, y: AudioBatch, mask: AudioBatch) -> Float[Tensor, " batch"]:
    """Return the mean |log mel(x) − log mel(y)| over the frames of each clip, in nats."""
    difference = (log_mel(x * mask) - log_mel(y * mask)).abs().mean(1)
    return masked_mean(difference, frame_mask(mask, HOP))


def band_errors(x: AudioBatch, y: AudioBatch, mask: AudioBatch) -> Float[Tensor, "batch bands"]:
    """Return Σ (|X| − |Y|)² of the STFT magnitudes in each band. Phases are left out, as they are hardly audible."""
    frames = frame_mask(mask, HOP)[:, None]
    difference = ((magnitudes(x * mask) - magnitudes(y * mask)) * frames).double().square().sum(2)
    frequency = torch.linspace(0, SAMPLE_RATE / 2, difference.shape[1], device=x.device)
    return torch.stack([difference[:, (frequency >= low) & (frequency < high)].sum(1) for low, high in BANDS.values()], dim=1)


@torch.no_grad()
def audio_error_by_codes(
    model: AnytimeModel, x: Int16[Tensor, "n 1 time"], counts: Sequence[int], progress: ProgressCallback | None = None
) -> list[AudioError]:
    """Return the reconstruction errors of clips from the first `count` codes, for each count."""
    sums = torch.zeros(len(counts), 3 + len(BANDS), dtype=torch.float64)
    energy, values = torch.zeros(len(BANDS), dtype=torch.float64), 0.0
    for start in range(0, len(x), BATCH):
        part = x[start : start + BATCH].to(model.device)
        clips, mask = to_float(part), is_valid_sample(part)
        energy += band_errors(clips, torch.zeros_like(clips), mask).sum(0).cpu()
        values += float(mask.sum(dtype=torch.float64))
        codes = model.encode(clips)
        for row, count in enumerate(counts):
            back = model.decode(codes[:, :count])
            totals = [f(clips, back, mask).double().sum()[None] for f in (log_mel_distance, stft_distance, squared_error)]
            sums[row] += torch.cat([*totals, band_errors(clips, back, mask).sum(0)]).cpu()
        if progress is not None:
            progress(start + len(part))
    size = torch.cat([torch.tensor([len(x), len(x), max(1.0, values)]), energy.clamp(min=1e-12)])
    return [AudioError(count, *means) for count, means in zip(counts, (sums / size).tolist(), strict=True)]


def codes_to_half_error(errors: Sequence[float]) -> int | None:
    """Return the first code count that halves the error of zero codes; None if no count does.

    Half of the error, not half of the improvement: a band that hardly improves would reach that at once.

    >>> codes_to_half_error([1.0, 0.9, 0.4, 0.2]), codes_to_half_error([1.0, 0.9])
    (2, None)
    """
    return next((count for count, error in enumerate(errors) if error <= errors[0] / 2), None)
