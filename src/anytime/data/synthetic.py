"""Synthetic datasets for smoke runs without the real data: strokes as images, chirps as audio."""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.core.random import uniform
from anytime.data.audio_datasets import crop_labels, fixed_crops
from anytime.data.audio_io import INT16_MAX, SAMPLE_RATE, TARGET_RMS
from anytime.data.dataset import Dataset
from anytime.data.recordings import CROP, segment_recordings

_STROKES = 3
_OVERTONES = 4
_LENGTHS = (CROP * 3 // 4, CROP * 3 // 2)  # shortest and longest: some are padded, some leave a choice of crops


def synthetic_images(name: str, shape: tuple[int, ...], count: int = 1024, seed: int = 0) -> Dataset:
    """Make `count` training images of soft strokes, and an eighth as many for validation and test, from the seed alone.

    Strokes rather than noise: they have few degrees of freedom, so a small model visibly learns within seconds.
    """
    eighth = max(1, count // 8)
    train, validation, test = torch.split(_strokes(shape, count + 2 * eighth, seed), [count, eighth, eighth])
    source = f"synthetic strokes of {name}'s shape from seed {seed}, not real data"
    return Dataset(name, train, validation, test, source, synthetic=True)


def _strokes(shape: tuple[int, ...], count: int, seed: int) -> UInt8[Tensor, "count channel height width"]:
    """Draw soft strokes over a dark background, one after the other."""
    channel, height, width = shape
    wanted = channel + _STROKES * (5 + channel)
    numbers = uniform(seed, torch.arange(count * wanted)).reshape(count, wanted, 1, 1)
    x = 0.25 * numbers[:, :channel].expand(-1, -1, height, width)
    for stroke in numbers[:, channel:].chunk(_STROKES, dim=1):
        cover = _cover(stroke[:, :5], height, width)
        x = x + cover * (0.4 + 0.6 * stroke[:, 5:] - x)
    return (x * 255).round().to(torch.uint8)


def _cover(stroke: Float[Tensor, "n 5 1 1"], height: int, width: int) -> Float[Tensor, "n 1 height width"]:
    """Return how much of each pixel a stroke covers: a narrow Gaussian with centre, angle, length and thickness."""
    across, down, angle, length, thickness = stroke.chunk(5, dim=1)
    columns = torch.linspace(0, 1, width) - (0.2 + 0.6 * across)
    rows = torch.linspace(0, 1, height)[:, None] - (0.2 + 0.6 * down)
    cosine, sine = torch.cos(torch.pi * angle), torch.sin(torch.pi * angle)
    along, aside = columns * cosine + rows * sine, rows * cosine - columns * sine
    return torch.exp(-0.5 * ((along / (0.1 + 0.2 * length)) ** 2 + (aside / (0.04 + 0.06 * thickness)) ** 2))


def synthetic_audio(name: str, count: int = 256, seed: int = 0) -> Dataset:
    """Make `count` training recordings, and an eighth as many for validation and test, from the seed alone."""
    eighth = max(1, count // 8)
    chirps = [_chirp(uniform(seed, row, torch.arange(4 + _OVERTONES))) for row in range(count + 2 * eighth)]
    stored = [(chirp * INT16_MAX).round().to(torch.int16) for chirp in chirps]
    names = [f"{row:05d}" for row in range(len(stored))]
    whole = segment_recordings(torch.cat(stored), [len(chirp) for chirp in stored], names)
    train, validation, test = whole[:count], whole[count : count + eighth], whole[count + eighth :]
    # The class of a chirp is its tenth of the range of pitches.
    labels = crop_labels(train, validation, test, lambda name: int(10 * uniform(seed, int(name), torch.arange(1))))
    source = f"synthetic chirps from seed {seed} in place of {name}, not real data; {train.num_short:,} shorter than a crop"
    return Dataset(name, train, fixed_crops(validation), fixed_crops(test), source, synthetic=True, labels=labels)


def _chirp(numbers: Float[Tensor, " n"]) -> Float[Tensor, " time"]:
    """Make a chirp, a gliding tone, from its pitch, glide, phase and length, followed by the amplitudes of its overtones."""
    pitch, glide, phase, duration = numbers[:4].tolist()
    time = torch.arange(round(_LENGTHS[0] + duration * (_LENGTHS[1] - _LENGTHS[0]))) / SAMPLE_RATE
    cycles = (80 + 200 * pitch) * (time + 0.3 * (glide - 0.5) * time**2) + phase
    signal = sum((strength / k * torch.sin(2 * torch.pi * k * cycles) for k, strength in enumerate(numbers[4:], 1)), time * 0)
    signal = signal * torch.sin(torch.pi * time / time[-1])  # fades in and out
    return TARGET_RMS * signal / signal.square().mean().sqrt().clamp(min=1e-6)
