"""What turns pictures into features that sets of pictures are compared by; here the small random one of smoke runs."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.core import random, storage

SEED = 0  # of the random network: one for all, or its distances could not be compared


@runtime_checkable
class FeatureNetwork(Protocol):
    """Pictures as bytes, or sounds as 16-bit numbers, in; one vector each out."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """Names the function that is computed: kept features of another are not used."""

    @property
    def size(self) -> int:
        """Features of one picture or sound."""

    @property
    def batch(self) -> int:
        """Pictures or sounds that are best given at a time."""

    @property
    def device(self) -> torch.device: ...

    @property
    def distance(self) -> str:
        """What a Fréchet distance between its features is called in a row of numbers."""

    @property
    def suffix(self) -> str:
        """Ends the names of the other numbers made of its features."""

    def __call__(self, x: Any) -> Float[Tensor, "n features"]: ...


def to_rgb(x: UInt8[Tensor, "n channel height width"]) -> UInt8[Tensor, "n 3 height width"]:
    """Grey pictures three times over; colours as they are."""
    return x.expand(-1, 3, -1, -1)


class RandomNetwork:
    """Three random convolutions, a stand-in for Inception at smoke scale: its distances are never called FID."""

    name = "random"
    distance = "frechet_random"
    suffix = "_random"
    WIDTHS = (3, 16, 32, 64)
    batch = 500

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.weights = [_weight(layer, *sides) for layer, sides in enumerate(zip(self.WIDTHS, self.WIDTHS[1:], strict=False))]
        self.digest = storage.digest({str(layer): weight for layer, weight in enumerate(self.weights)})
        self.weights = [weight.to(device) for weight in self.weights]

    @property
    def size(self) -> int:
        return self.WIDTHS[-1]

    @torch.no_grad()
    def __call__(self, x: UInt8[Tensor, "n channel height width"]) -> Float[Tensor, "n features"]:
        return torch.cat([self._features(part.to(self.device)) for part in to_rgb(x).split(self.batch)])

    def _features(self, x: UInt8[Tensor, "n 3 height width"]) -> Float[Tensor, "n features"]:
        h = (x.float() - 128) / 128
        for weight in self.weights:
            h = F.relu(F.conv2d(h, weight, stride=2, padding=1))
        return h.mean((2, 3))


def _weight(layer: int, inputs: int, outputs: int) -> Float[Tensor, "outputs inputs 3 3"]:
    """Uniform weights of variance 2 / fan-in, which keeps the size of what passes through a rectifier."""
    shape = torch.Size((outputs, inputs, 3, 3))
    bound = math.sqrt(6 / (inputs * 9))
    return (2 * random.uniform(SEED, layer, torch.arange(shape.numel())) - 1).view(shape) * bound
