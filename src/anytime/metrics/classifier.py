"""A small classifier of images or audio; its features serve to compare sets of examples.

It is trained on the training part of the data (`evaluation.classifier_training`). Distances between its features are never
called FID.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int16, Integer, UInt8
from torch import Tensor, nn

from anytime.core import random, storage
from anytime.data.loader import to_float
from anytime.data.spectrogram import FLOOR, log_mel
from anytime.metrics.features import MAX_KEPT, FeatureNetwork
from anytime.metrics.memorisation import nearest_distances

CONFIDENCE = 0.9
"""An example is classified if the probability of its class is above this."""

Maps = Float[Tensor, "n channel height width"]
"""What the network sees: images in [0, 1], or log-mel spectrograms (silence is 0, speech about 1)."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """The network and its training: AdamW, linear warm-up over a tenth of the steps, then cosine decay to zero."""

    widths: tuple[int, ...] = (16, 32, 32, 32)
    """Channels of the convolutions."""
    strides: tuple[int, ...] = (2, 1, 2, 1)
    features: int = 128
    """Length of the feature vector."""
    classes: int = 10
    negative_class: bool = False
    """Whether the network has one more class, for examples of no class. Without it, it would be confident about noise."""
    pool_time: bool = False
    """Whether features are the mean and maximum over the last axis, so that they do not depend on the position in time."""
    dropout: float = 0.3
    epochs: int = 5
    batch: int = 128
    lr: float = 2e-3
    seed: int = 0


AUDIO_CONFIG = ClassifierConfig(
    widths=(32, 64, 128, 192), strides=(2, 2, 2, 2), negative_class=True, pool_time=True, epochs=20, lr=3e-3
)


class Classifier(nn.Module):
    """Convolutions, a layer of features, and a linear layer to the classes."""

    def __init__(self, shape: tuple[int, ...], config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        layers, (channels, height, width) = list[nn.Module](), shape
        for out, stride in zip(config.widths, config.strides, strict=True):
            layers += [nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            channels, height, width = out, math.ceil(height / stride), math.ceil(width / stride)
        self.body = nn.Sequential(*layers)
        self.summary = nn.Sequential(
            nn.Linear(channels * height * (2 if config.pool_time else width), config.features), nn.ReLU()
        )
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.features, config.classes + config.negative_class)

    def init_weights(self, seed: int) -> None:
        """Set the weights by the seed, as torch initialises layers: uniform within 1 / √fan-in; biases become zero."""
        layers = [layer for layer in self.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
        for index, layer in enumerate(layers):
            numbers = random.uniform(seed, index, torch.arange(layer.weight.numel())).view_as(layer.weight)
            layer.weight.data.copy_((2 * numbers - 1) / math.sqrt(layer.weight[0].numel()))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def embed(self, maps: Maps) -> Float[Tensor, "n features"]:
        """Return the feature vectors."""
        found = self.body(maps)
        if self.config.pool_time:  # the maximum too: in the mean, silence after a word hides a short consonant
            found = torch.cat([found.mean(3), found.amax(3)], 1)
        features: Tensor = self.summary(found.flatten(1))
        return features

    def forward(self, maps: Maps) -> Float[Tensor, "n classes"]:
        """Return the logits of the classes; those of the negative class are last."""
        logits: Tensor = self.head(self.dropout(self.embed(maps)))
        return logits


def to_maps(x: UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n 1 time"]) -> Maps:
    """Return images in [0, 1], and audio as scaled log-mel spectrograms."""
    return spectrogram_maps(to_float(x)) if x.ndim == 3 else to_float(x)


def spectrogram_maps(x: Float[Tensor, "n 1 time"]) -> Maps:
    """Return log-mel spectrograms, scaled so that silence is 0 and speech about 1."""
    return (log_mel(x)[:, None] - math.log(FLOOR)) / 5


@dataclass(frozen=True, slots=True)
class Predictions:
    """The classes that a classifier assigns."""

    labels: Tensor  # [n], the most probable class; the number of classes stands for none of them
    confidence: Tensor  # [n], its probability
    classes: int

    @property
    def classified(self) -> float:
        """Fraction of the examples that are of some class with a confidence above 0.9."""
        return float(self._confident.double().mean())

    @property
    def by_class(self) -> list[int]:
        """Classified examples of each class."""
        return torch.bincount(self.labels[self._confident], minlength=self.classes).tolist()

    def accuracy(self, labels: Integer[Tensor, " n"]) -> float:
        """Return the fraction of the examples whose most probable class is right."""
        return float(self._correct(labels).mean())

    def confident_accuracy(self, labels: Integer[Tensor, " n"]) -> float | None:
        """Return the accuracy over the classified examples; None if there are none."""
        return float(self._correct(labels)[self._confident].mean()) if self._confident.any() else None

    def _correct(self, labels: Integer[Tensor, " n"]) -> Float[Tensor, " n"]:
        return (self.labels == labels.to(self.labels.device)).double()

    @property
    def _confident(self) -> Bool[Tensor, " n"]:
        return (self.confidence > CONFIDENCE) & (self.labels < self.classes)


@dataclass(frozen=True, slots=True)
class ClassifierReport:
    """How a classifier was trained, and how good it is."""

    accuracy: float  # on held-out examples, which the training did not see
    examples: int  # held-out examples
    seconds: float  # of training


class ClassifierFeatures(FeatureNetwork):
    """A trained classifier as a feature network for images."""

    name = "classifier"
    distance = "frechet_classifier"
    suffix = "_classifier"
    batch = 500
    max_kept = MAX_KEPT  # recall grows with the number of features, so that all sets have the same

    def __init__(self, classifier: Classifier, report: ClassifierReport, device: torch.device) -> None:
        self.classifier, self.report, self.device = classifier.to(device).eval(), report, device
        self.size = classifier.config.features
        self.digest = storage.digest(classifier.state_dict())

    @torch.no_grad()
    def __call__(self, x: UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n 1 time"]) -> Float[Tensor, "n features"]:
        """Return the features of stored examples."""
        return torch.cat([self.classifier.embed(to_maps(part.to(self.device))) for part in torch.split(x, self.batch)])

    @torch.no_grad()
    def predict(self, features: Float[Tensor, "n features"]) -> Predictions:
        """Classify examples by their features."""
        confidence, labels = self.classifier.head(features.to(self.device)).softmax(1).max(1)
        return Predictions(labels, confidence, self.classifier.config.classes)

    def extra_metrics(self, features: Tensor, reference: Tensor) -> Mapping[str, Any]:
        """Return the classified fraction and how it divides among the classes."""
        found = self.predict(features)
        counts = torch.tensor(found.by_class, dtype=torch.float64)
        return {"classified": found.classified, "class_fractions": (counts / counts.sum().clamp_min(1)).tolist()}


class AudioFeatures(ClassifierFeatures):
    """A trained classifier as a feature network for audio: of spoken digits, or of transforms where labels are missing."""

    max_kept = 16 * MAX_KEPT

    def __init__(self, classifier: Classifier, report: ClassifierReport, device: torch.device, spoken_digits: bool) -> None:
        super().__init__(classifier, report, device)
        self.spoken_digits = spoken_digits
        self.name = "digit classifier" if spoken_digits else "transform classifier"
        self.suffix = "_digits" if spoken_digits else "_audio"
        self.distance = f"frechet{self.suffix}"
        self.facts = {"accuracy": report.accuracy, "accuracy_examples": report.examples}

    def extra_metrics(self, features: Tensor, reference: Tensor) -> Mapping[str, Any]:
        """Return distances to the nearest reference example: the median and the first percentile; of digits, their counts.

        Samples of a model that copies have smaller distances than held-out data.
        """
        near = nearest_distances(features, reference).double().cpu()
        row: dict[str, Any] = {"nearest": float(near.median()), "nearest_p01": float(near.quantile(0.01))}
        if self.spoken_digits:
            found = self.predict(features)
            row |= {"classified": found.classified, "by_digit": found.by_class}
        return row
