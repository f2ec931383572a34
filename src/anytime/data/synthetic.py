"""Synthetic voices: a gliding tone with overtones, for smoke runs where the real recordings are absent."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.core.random import uniform
from anytime.data.audio_datasets import crop_labels, fixed_crops
from anytime.data.audio_io import INT16_MAX, SAMPLE_RATE, TARGET_RMS
from anytime.data.dataset import Dataset
from anytime.data.recordings import CROP, segment_recordings

_OVERTONES = 4
_LENGTHS = (CROP * 3 // 4, CROP * 3 // 2)  # the shortest and the longest: some are padded, some leave a choice of crops


def synthetic_audio(name: str, count: int = 256, seed: int = 0) -> Dataset:
    """`count` training recordings, an eighth as many for validation and test; a pure function of the seed."""
    eighth = max(1, count // 8)
    tones = [_tone(uniform(seed, row, torch.arange(4 + _OVERTONES))) for row in range(count + 2 * eighth)]
    stored = [(tone * INT16_MAX).round().to(torch.int16) for tone in tones]
    whole = segment_recordings(torch.cat(stored), [len(tone) for tone in stored], [f"{row:05d}" for row in range(len(stored))])
    train, validation, test = whole[:count], whole[count : count + eighth], whole[count + eighth :]
    labels = crop_labels(train, validation, test, lambda name: _digit(seed, int(name)))
    source = (
        f"synthetic gliding tones from seed {seed} in place of {name}, not real data; {train.num_short:,} shorter than a crop"
    )
    return Dataset(name, train, fixed_crops(validation), fixed_crops(test), source, synthetic=True, labels=labels)


def _digit(seed: int, row: int) -> int:
    """What stands for the digit that is spoken: a tenth of the range of pitches."""
    return int(10 * uniform(seed, row, torch.arange(1)))


def _tone(numbers: Float[Tensor, " n"]) -> Float[Tensor, " time"]:
    """Pitch, glide, phase and length, then the overtones' strengths."""
    pitch, glide, phase, duration = numbers[:4].tolist()
    time = torch.arange(round(_LENGTHS[0] + duration * (_LENGTHS[1] - _LENGTHS[0]))) / SAMPLE_RATE
    cycles = (80 + 200 * pitch) * (time + 0.3 * (glide - 0.5) * time**2) + phase
    signal = sum((strength / k * torch.sin(2 * torch.pi * k * cycles) for k, strength in enumerate(numbers[4:], 1)), time * 0)
    signal = signal * torch.sin(torch.pi * time / time[-1])  # rises and falls
    return TARGET_RMS * signal / signal.square().mean().sqrt().clamp(min=1e-6)
