"""A small network that listens: which digit is spoken, or what was done to a sound; and features that sets are compared by.

It is our own, trained on the training part of the data (see `schooling`). Distances between its features are never called FID.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor, nn

from anytime.data.loader import to_float
from anytime.data.spectrogram import FLOOR, N_MELS, log_mel

CONFIDENT = 0.9
"""Above this confidence a sample counts as a digit."""
BATCH = 256
_MAX_MASK = 0.15  # share of the bands, and of the frames, at most, that is hidden in training, twice of each


@dataclass(frozen=True, kw_only=True)
class AudioClassifierConfig:
    widths: tuple[int, ...] = (32, 64, 128, 192)
    """Channels of the convolutions, each of which halves time and frequency."""
    features: int = 128
    """Numbers that a sound is summed up in."""
    classes: int = 10
    """What it tells apart, besides what is none of them: without that class it would be sure of noise, too."""
    dropout: float = 0.3


class AudioClassifier(nn.Module):
    """Strided convolutions on the log-mel spectrogram, mean and largest over time, two linear layers."""

    def __init__(self, config: AudioClassifierConfig) -> None:
        super().__init__()
        self.config = config
        layers: list[nn.Module] = []
        for i, o in zip((1, *config.widths), config.widths, strict=False):
            layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.dropout = nn.Dropout(config.dropout)
        found = 2 * config.widths[-1] * (N_MELS >> len(config.widths))
        self.summary = nn.Sequential(nn.Linear(found, config.features), nn.ReLU())
        self.head = nn.Linear(config.features, config.classes + 1)

    def features(self, x: Float[Tensor, "n 1 time"]) -> Float[Tensor, "n features"]:
        """What sets of sounds are compared by."""
        spectra = (log_mel(x)[:, None] - math.log(FLOOR)) / 5  # silence is 0, speech about 1
        if self.training:
            spectra = _spec_augment(spectra)
        found = self.body(spectra)
        # Over time alone: where on the frequency axis a formant lies is what tells vowels apart. The largest, too: in the mean
        # a short consonant drowns, and the more so the more silence is behind the word.
        features: Tensor = self.summary(torch.cat([found.mean(3), found.amax(3)], 1).flatten(1))
        return features

    def forward(self, x: Float[Tensor, "n 1 time"]) -> Float[Tensor, "n classes"]:
        """Logits of the classes, and of none of them as the last."""
        logits: Tensor = self.head(self.dropout(self.features(x)))
        return logits


def _spec_augment(spectra: Float[Tensor, "n 1 band frame"]) -> Float[Tensor, "n 1 band frame"]:
    """Two stretches of bands and two of frames made silent: a digit must be known by all of its parts."""
    n, _, *sides = spectra.shape
    for axis, side in enumerate(sides):
        position = torch.arange(side, device=spectra.device)
        for _ in range(2):
            width, start = torch.rand(2, n, 1, device=spectra.device)
            begin = start * side * (1 - _MAX_MASK * width)
            visible = (position < begin) | (position >= begin + _MAX_MASK * side * width)
            spectra = spectra * (visible[:, None, :, None] if axis == 0 else visible[:, None, None, :])
    return spectra


@dataclass(frozen=True, slots=True)
class AudioPredictions:
    """What was heard in some sounds."""

    digits: Tensor  # [n], the likeliest class, or the number of classes for none of them
    confidence: Tensor  # [n], its probability
    classes: int

    @property
    def recognised(self) -> float:
        """The share of sounds that are some digit with a confidence above 0.9."""
        return float(self._confident.double().mean())

    def accuracy_of(self, digits: Int[Tensor, " n"]) -> float:
        """The share of sounds whose digit is heard right."""
        return float(self._correct(digits).mean())

    def confident_accuracy(self, digits: Int[Tensor, " n"]) -> float | None:
        """The same of the sounds that are recognised; None where there is none."""
        return float(self._correct(digits)[self._confident].mean()) if self._confident.any() else None

    def _correct(self, digits: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        return (self.digits == digits.to(self.digits.device)).double()

    @property
    def by_digit(self) -> list[int]:
        """How many of those there are of each digit."""
        return torch.bincount(self.digits[self._confident], minlength=self.classes).tolist()

    @property
    def _confident(self) -> Bool[Tensor, " n"]:
        return (self.confidence > CONFIDENT) & (self.digits != self.classes)


@torch.no_grad()
def recognised(network: AudioClassifier, features: Float[Tensor, "n features"]) -> AudioPredictions:
    """What the network makes of sounds, given their features."""
    confidence, digits = network.head(features).softmax(1).max(1)
    return AudioPredictions(digits, confidence, network.config.classes)


@torch.no_grad()
def features_of(network: AudioClassifier, x: Int16[Tensor, "n 1 time"]) -> Float[Tensor, "n features"]:
    """Features of 16-bit sounds, on the network's device."""
    network.eval()
    device = network.head.weight.device
    return torch.cat([network.features(to_float(part.to(device))) for part in torch.split(x, BATCH)])


def accuracy(network: AudioClassifier, x: Int16[Tensor, "n 1 time"], digits: Int[Tensor, " n"]) -> float:
    """The share of sounds whose digit is heard right."""
    return recognised(network, features_of(network, x)).accuracy_of(digits)


def nearest_distances(samples: Float[Tensor, "n features"], others: Float[Tensor, "m features"]) -> Float[Tensor, " n"]:
    """How far each sample lies from the nearest of the others, such as the training set: zero is a copy."""
    exact = "donot_use_mm_for_euclid_dist"  # by inner products a copy would lie at 0.01 or so
    return torch.cat([torch.cdist(part, others, compute_mode=exact).amin(1) for part in samples.split(BATCH)])
