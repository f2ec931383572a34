"""A set of pictures or of sounds in memory, and how its validation part is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int16, Int64, UInt8
from torch import Tensor

from anytime.core.random import permutation, uniform
from anytime.data.recordings import Recordings

VALIDATION = 5_000  # examples; a tenth of sets that have fewer than ten times as many
_STROKES = 3

Examples = UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n channel time"]
"""Pictures as bytes, or sounds as 16-bit numbers."""


@dataclass(frozen=True, slots=True)
class AudioLabels:
    """Which digit is spoken: in every training recording, and in every crop of the other parts."""

    train: Int64[Tensor, " train"]
    validation: Int64[Tensor, " validation"]
    test: Int64[Tensor, " test"]
    """empty where there is no test part"""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Pictures as bytes, or sounds as 16-bit numbers, in parts that share no example."""

    name: str
    train: UInt8[Tensor, "train channel height width"] | Recordings
    """of sounds, whole recordings: every epoch cuts its own crops"""
    validation: UInt8[Tensor, "validation channel height width"] | Int16[Tensor, "validation channel time"]
    """never trained on; chooses among checkpoints"""
    test: UInt8[Tensor, "test channel height width"] | Int16[Tensor, "test channel time"] | None
    """chooses nothing; None where the set has no test part"""
    source: str
    """one phrase for logs and results: where the pixels came from, how they were cropped and split"""
    synthetic: bool = False
    random_validation: bool = False
    """whether the validation part was drawn from the training pictures that the set publishes"""
    labels: AudioLabels | None = None
    """of spoken digits; no model sees them, a recogniser does"""

    @property
    def shape(self) -> tuple[int, ...]:
        """(channel, height, width), or (channel, time)."""
        return tuple(self.train.shape[1:])

    @property
    def is_audio(self) -> bool:
        return isinstance(self.train, Recordings)

    @property
    def images(self) -> UInt8[Tensor, "train channel height width"]:
        """The training part of a set of pictures."""
        assert isinstance(self.train, Tensor), f"{self.name} holds sounds"
        return self.train

    @property
    def held_out(self) -> Examples:
        """What numbers are reported on: the test part, or the validation part where there is none."""
        return self.validation if self.test is None else self.test

    @property
    def published_train(self) -> Examples:
        """The training set as published, which distances are measured to: drawn validation pictures are part of it.

        Not where they are what numbers are reported on, for want of a test part. Of recordings, their crops end to end.
        """
        if isinstance(self.train, Recordings):
            return self.train.tiles()
        return torch.cat([self.images, self.validation]) if self.random_validation and self.test is not None else self.images

    def subset(self, train: int, validation: int) -> Dataset:
        """The first `train` training examples and the first `validation` of the validation and the test part."""
        parts = self.train[:train], self.validation[:validation]
        test = None if self.test is None else self.test[:validation]
        source = f"{self.source}; the first {len(parts[0]):,} for training and {len(parts[1]):,} for validation"
        labels = None
        if self.labels is not None:
            labels = AudioLabels(self.labels.train[:train], self.labels.validation[:validation], self.labels.test[:validation])
        return replace(self, train=parts[0], validation=parts[1], test=test, source=source, labels=labels)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader is asked for."""

    name: str
    root: Path  # the folder (or zip file) that holds the set in its published form
    size: int  # height and width of the pictures
    cache: Path  # for decoded arrays


def split_validation(
    train: UInt8[Tensor, "n ..."], seed: int = 0
) -> tuple[UInt8[Tensor, "rest ..."], UInt8[Tensor, "drawn ..."]]:
    """Draw 5,000 examples by seed (a tenth of a smaller set) for validation; both parts keep the order of the set."""
    count = min(VALIDATION, max(1, len(train) // 10))
    random_validation = torch.zeros(len(train), dtype=torch.bool)
    random_validation[permutation(len(train), seed)[:count]] = True
    return train[~random_validation], train[random_validation]


def with_random_validation(name: str, train: Tensor, test: Tensor | None, source: str) -> Dataset:
    """The dataset of a set that publishes no validation part."""
    rest, random_validation = split_validation(train)
    source = f"{source}; {len(random_validation):,} of {len(train):,} training pictures drawn by seed 0 for validation"
    return Dataset(name, rest, random_validation, test, source, random_validation=True)


def synthetic_images(name: str, shape: tuple[int, ...], count: int = 1024, seed: int = 0) -> Dataset:
    """`count` training pictures of soft strokes, an eighth as many for validation and test; a pure function of the seed.

    Strokes rather than noise: they have few degrees of freedom, so that a small model trained for seconds visibly learns.
    """
    eighth = max(1, count // 8)
    train, validation, test = torch.split(_strokes(shape, count + 2 * eighth, seed), [count, eighth, eighth])
    source = f"synthetic strokes of {name}'s shape from seed {seed}, not real data"
    return Dataset(name, train, validation, test, source, synthetic=True)


def _strokes(shape: tuple[int, ...], count: int, seed: int) -> UInt8[Tensor, "count channel height width"]:
    """Soft strokes laid over a dark background, one after the other."""
    channel, height, width = shape
    wanted = channel + _STROKES * (5 + channel)
    numbers = uniform(seed, torch.arange(count * wanted)).reshape(count, wanted, 1, 1)
    x = 0.25 * numbers[:, :channel].expand(-1, -1, height, width)
    for stroke in numbers[:, channel:].chunk(_STROKES, dim=1):
        cover = _cover(stroke[:, :5], height, width)
        x = x + cover * (0.4 + 0.6 * stroke[:, 5:] - x)
    return (x * 255).round().to(torch.uint8)


def _cover(stroke: Float[Tensor, "n 5 1 1"], height: int, width: int) -> Float[Tensor, "n 1 height width"]:
    """How much of each pixel a stroke covers: a long, narrow Gaussian given by its centre, angle, length and thickness."""
    across, down, angle, length, thickness = stroke.chunk(5, dim=1)
    columns = torch.linspace(0, 1, width) - (0.2 + 0.6 * across)
    rows = torch.linspace(0, 1, height)[:, None] - (0.2 + 0.6 * down)
    cosine, sine = torch.cos(torch.pi * angle), torch.sin(torch.pi * angle)
    along, aside = columns * cosine + rows * sine, rows * cosine - columns * sine
    return torch.exp(-0.5 * ((along / (0.1 + 0.2 * length)) ** 2 + (aside / (0.04 + 0.06 * thickness)) ** 2))
