"""A small recogniser of spoken digits: how many samples are digits, and a Fréchet distance on its features.

It is our own network, trained on the voices of AudioMNIST's training part; its distance is called `frechet_digits`, never FID.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int16
from torch import Tensor, nn

from anytime import randomness, storage
from anytime.data.loader import batch_indices, to_float
from anytime.data.spectrogram import FLOOR, log_mel
from anytime.errors import UserError
from anytime.evaluation.frechet import Moments, frechet_distance

CLASSES = 10
SURE = 0.9
"""Above this confidence a sample counts as a digit."""
_BATCH = 256
_SHIFT = 1600  # samples, a tenth of a second: where a digit begins says nothing of which it is


@dataclass(frozen=True, kw_only=True)
class RecogniserConfig:
    widths: tuple[int, ...] = (32, 64, 128, 128)
    """Channels of the convolutions, each of which halves time and frequency."""
    dropout: float = 0.3


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the recogniser is trained: Adam, its rate falling in a cosine."""

    epochs: int = 30
    batch: int = 128
    rate: float = 1e-3
    noise: float = 0.01
    """Largest noise laid over a sound, whose RMS is about 0.1."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.rate > 0 or self.noise < 0:
            raise UserError(
                f"a recogniser needs epochs, batch and rate above zero, not {self.epochs}, {self.batch}, {self.rate}"
            )


class Recogniser(nn.Module):
    """Strided convolutions on the log-mel spectrogram, the mean over time and frequency, one linear layer."""

    def __init__(self, config: RecogniserConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in zip((1, *config.widths), config.widths, strict=False):
            layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.widths[-1], CLASSES)

    def features(self, x: Float[Tensor, "n 1 time"]) -> Float[Tensor, "n features"]:
        """What sets of sounds are compared by."""
        spectra = (log_mel(x)[:, None] - torch.tensor(FLOOR).log()) / 5  # silence is 0, speech about 1
        features: Tensor = self.body(spectra).mean((2, 3))
        return features

    def forward(self, x: Float[Tensor, "n 1 time"]) -> Float[Tensor, "n classes"]:
        logits: Tensor = self.head(self.dropout(self.features(x)))
        return logits

    def save(self, path: Path) -> str:
        """Write the weights; returns their digest, which names the network beside every number it gives."""
        return storage.write_tensors(path, self.state_dict())


def load_recogniser(path: Path, config: RecogniserConfig | None = None) -> Recogniser:
    """A recogniser that was saved before."""
    network = Recogniser(config or RecogniserConfig())
    try:
        network.load_state_dict(storage.read_tensors(path)[0])
    except RuntimeError:
        raise UserError(f"{path} holds no recogniser of these widths; train it again") from None
    return network.eval()


def train_recogniser(
    x: Int16[Tensor, "n 1 time"],
    digits: Int[Tensor, " n"],
    training: Training,
    config: RecogniserConfig | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Recogniser:
    """Train on the device that `x` lies on; `progress` is told the epoch and its mean loss."""
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(training.seed)
        network = Recogniser(config or RecogniserConfig()).to(x.device).train()
        steps = len(x) // min(training.batch, len(x))
        optimizer = torch.optim.Adam(network.parameters(), training.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, training.epochs * steps)
        for epoch in range(training.epochs):
            total = torch.zeros((), device=x.device)
            for step in range(epoch * steps, (epoch + 1) * steps):
                rows = batch_indices(len(x), training.batch, training.seed, step).to(x.device)
                loss = F.cross_entropy(network(_varied(to_float(x[rows]), training, step)), digits[rows])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach()
            if progress is not None:
                progress(epoch + 1, float(total) / steps)
    return network.eval()


def _varied(x: Float[Tensor, "n 1 time"], training: Training, step: int) -> Float[Tensor, "n 1 time"]:
    """Shifted in time, with some noise; a function of (seed, step)."""
    numbers = randomness.uniform(training.seed, 2, step, torch.arange(2 * len(x), device=x.device))
    shift = (numbers[: len(x)] * _SHIFT).long()[:, None, None]
    time = torch.arange(x.shape[-1], device=x.device) - shift
    moved = torch.where(time >= 0, x.gather(2, time.clamp(min=0)), 0.0)
    return moved + training.noise * numbers[len(x) :, None, None] * torch.randn_like(x)


@dataclass(frozen=True, slots=True)
class Recognition:
    digits: Tensor  # [n], the likeliest digit
    confidence: Tensor  # [n], its probability
    features: Tensor  # [n, features]

    @property
    def recognised(self) -> float:
        """The share of sounds that are some digit with a confidence above 0.9."""
        return float((self.confidence > SURE).double().mean())

    @property
    def by_digit(self) -> list[int]:
        """How many of those there are of each digit."""
        return torch.bincount(self.digits[self.confidence > SURE], minlength=CLASSES).tolist()


@torch.no_grad()
def recognise(network: Recogniser, x: Float[Tensor, "n 1 time"]) -> Recognition:
    """What the recogniser hears in waveforms in [-1, 1]."""
    device = network.head.weight.device
    network.eval()
    features = torch.cat([network.features(part.to(device)) for part in torch.split(x, _BATCH)])
    confidence, digits = network.head(features).softmax(1).max(1)
    return Recognition(digits, confidence, features)


def accuracy(network: Recogniser, x: Int16[Tensor, "n 1 time"], digits: Int[Tensor, " n"]) -> float:
    """The share of sounds whose digit is heard right."""
    heard = torch.cat([recognise(network, to_float(part)).digits for part in torch.split(x, _BATCH)])
    return float((heard == digits.to(heard.device)).double().mean())


def frechet_digits(first: Recognition, second: Recognition) -> float:
    """The Fréchet distance between the features of two sets of sounds."""
    return frechet_distance(Moments.of(first.features), Moments.of(second.features))


def nearest_distances(samples: Recognition, others: Recognition) -> Float[Tensor, " n"]:
    """How far each sample's features lie from the nearest of the others', such as the training set's: zero is a copy."""
    return torch.cat([torch.cdist(part, others.features).amin(1) for part in torch.split(samples.features, _BATCH)])
