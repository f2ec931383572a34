"""Feature networks: they turn images or audio into feature vectors, on which sets of examples are compared."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.core import random, storage

SEED = 0  # of the random network: always the same, so that its distances can be compared
MAX_KEPT, INCEPTION_SIZE = 10_000, 2048  # feature vectors kept for KID, precision and recall: 82 MB of Inception's


class FeatureNetwork(ABC):
    """Maps stored examples (uint8 images or int16 audio) to one feature vector each."""

    name: str
    distance: str
    """Key of the Fréchet distance between its features."""
    suffix: str
    """Ending of the keys of the other metrics on its features."""
    digest: str
    """Identifies the function that is computed; cached features of another network are not used."""
    equal_digests: tuple[str, ...] = ()
    """Digests of the same network computed otherwise, whose cached distances may be used."""
    size: int
    """Length of a feature vector."""
    batch: int
    """Examples to process at a time."""
    device: torch.device
    facts: Mapping[str, float] = {}
    """Facts about the network for the row of held-out data."""

    @property
    def max_kept(self) -> int:
        """Feature vectors kept of a set; more where they are short."""
        return MAX_KEPT * max(1, INCEPTION_SIZE // self.size)

    @abstractmethod
    def __call__(self, x: Any) -> Float[Tensor, "n features"]:
        """Return the features of stored examples."""

    def extra_metrics(
        self, features: Float[Tensor, "n features"], reference: Float[Tensor, "m features"]
    ) -> Mapping[str, float | list[float] | list[int]]:
        """Return further metrics of a set, by name."""
        return {}


def to_rgb(x: UInt8[Tensor, "n channel height width"]) -> UInt8[Tensor, "n 3 height width"]:
    """Repeat the channel of grey images three times; return colour images unchanged."""
    return x.expand(-1, 3, -1, -1)


class RandomNetwork(FeatureNetwork):
    """Three random convolutions that replace Inception at smoke scale; its distances are never called FID."""

    name = "random"
    distance = "frechet_random"
    suffix = "_random"
    WIDTHS = (3, 16, 32, 64)
    size = WIDTHS[-1]
    batch = 500

    def __init__(self, device: torch.device) -> None:
        self.device = device
        weights = [_weight(layer, *sides) for layer, sides in enumerate(zip(self.WIDTHS, self.WIDTHS[1:], strict=False))]
        self.digest = storage.digest({str(layer): weight for layer, weight in enumerate(weights)})
        self.weights = [weight.to(device) for weight in weights]

    @torch.no_grad()
    def __call__(self, x: UInt8[Tensor, "n channel height width"]) -> Float[Tensor, "n features"]:
        """Return the features of images."""
        return torch.cat([self._features(part.to(self.device)) for part in to_rgb(x).split(self.batch)])

    def _features(self, x: UInt8[Tensor, "n 3 height width"]) -> Float[Tensor, "n features"]:
        h = (x.float() - 128) / 128
        for weight in self.weights:
            h = F.relu(F.conv2d(h, weight, stride=2, padding=1))
        return h.mean((2, 3))


def _weight(layer: int, inputs: int, outputs: int) -> Float[Tensor, "outputs inputs 3 3"]:
    """Uniform weights of variance 2 / fan-in, which keeps the scale of activations through a ReLU."""
    shape = torch.Size((outputs, inputs, 3, 3))
    bound = math.sqrt(6 / (inputs * 9))
    return (2 * random.uniform(SEED, layer, torch.arange(shape.numel())) - 1).view(shape) * bound
