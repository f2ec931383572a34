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
from anytime.data.audio_io import RATE
from anytime.data.loader import to_float
from anytime.data.recordings import present
from anytime.metrics.code_stats import Progress
from anytime.metrics.quality import Row
from anytime.metrics.spectrogram import HOP, frames, log_mel, magnitudes, mean_over, stft_distance
from anytime.model import AnytimeModel

BATCH = 100
BANDS = {"low": (0, 500), "middle": (500, 2000), "high": (2000, RATE // 2 + 1)}
"""Hertz: pitch and first formant; the vowels' upper formants; consonants. The upper edge belongs to the next band."""

Waves = Float[Tensor, "batch channel time"]


def log_mel_distance(x: Waves, y: Waves, mask: Waves) -> Float[Tensor, " batch"]:
    """Mean |log mel(x) − log mel(y)| over the frames of each sound, in nats."""
    apart = (log_mel(x * mask) - log_mel(y * mask)).abs().mean(1)
    return mean_over(apart, frames(mask, HOP))


def band_errors(x: Waves, y: Waves, mask: Waves) -> Float[Tensor, "batch bands"]:
    """Σ (|X| − |Y|)² of the short-time magnitudes in the low, the middle and the high band.

    Magnitudes, as phases are hardly heard: a vowel whose overtones are all there is not wrong because they begin elsewhere.
    """
    kept = frames(mask, HOP)[:, None]
    apart = ((magnitudes(x * mask) - magnitudes(y * mask)) * kept).double().square().sum(2)
    frequency = torch.linspace(0, RATE / 2, apart.shape[1], device=x.device)
    return torch.stack([apart[:, (frequency >= low) & (frequency < high)].sum(1) for low, high in BANDS.values()], dim=1)


@torch.no_grad()
def sound_rows(
    model: AnytimeModel, x: Int16[Tensor, "n 1 time"], counts: Sequence[int], progress: Progress | None = None
) -> list[Row]:
    """For each number of codes: `log_mel`, `stft`, mean squared `error`, and the magnitudes' error by band.

    A band's is Σ (|X| − |X̂|)² / Σ |X|², both summed over all sounds: 1 is as good as silence.
    """
    sums = torch.zeros(len(counts), 3 + len(BANDS), dtype=torch.float64)
    energy, values = torch.zeros(len(BANDS), dtype=torch.float64), 0.0
    for start in range(0, len(x), BATCH):
        part = x[start : start + BATCH].to(model.device)
        waves, mask = to_float(part), present(part)
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
            **dict(zip(names, numbers, strict=True)),
            "examples": len(x),
        }
        for count, numbers in zip(counts, (sums / size).tolist(), strict=True)
    ]


def _distances(x: Waves, y: Waves, mask: Waves) -> Float[Tensor, " numbers"]:
    whole = [f(x, y, mask).double().sum()[None] for f in (log_mel_distance, stft_distance, squared_error)]
    return torch.cat([*whole, band_errors(x, y, mask).sum(0)]).cpu()


def half_way(errors: Sequence[float]) -> int | None:
    """The first number of codes at which half of the error that there is without codes is gone; None where it never is.

    Low frequencies come first where the low band's is the smallest. Half of the error, not of the drop: a band that hardly gets
    better makes half of its little way at once.

    >>> half_way([1.0, 0.9, 0.4, 0.2]), half_way([1.0, 0.9])
    (2, None)
    """
    return next((count for count, error in enumerate(errors) if error <= errors[0] / 2), None)
