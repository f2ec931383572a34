"""A small recogniser of spoken digits: how many samples are digits, and a Fréchet distance on its features.

It is our own network, trained on the voices of AudioMNIST's training part; its distance is called `frechet_digits`, never FID.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor, nn

from anytime import randomness, storage
from anytime.data.loader import batch_indices, to_float
from anytime.data.spectrogram import FLOOR, MELS, log_mel
from anytime.errors import UserError
from anytime.evaluation.frechet import Moments, frechet_distance

CLASSES = 10
NOTHING = 10
"""The class of sounds that are no digit: without it a network is sure of noise, too."""
SURE = 0.9
"""Above this confidence a sample counts as a digit."""
_BATCH = 256
_SHIFT = 1600  # samples, a tenth of a second: where a digit begins says nothing of which it is
_SPEED = 0.15  # faster or slower, higher or lower by this share: other voices
_NOTHINGS = 8  # one sound in so many is made into no digit


@dataclass(frozen=True, kw_only=True)
class RecogniserConfig:
    widths: tuple[int, ...] = (32, 64, 128, 128)
    """Channels of the convolutions, each of which halves time and frequency."""
    features: int = 128
    """Numbers that a sound is summed up in."""
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
    """Strided convolutions on the log-mel spectrogram, the mean over time, two linear layers."""

    def __init__(self, config: RecogniserConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in zip((1, *config.widths), config.widths, strict=False):
            layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.dropout = nn.Dropout(config.dropout)
        self.summary = nn.Sequential(nn.Linear(config.widths[-1] * (MELS >> len(config.widths)), config.features), nn.ReLU())
        self.head = nn.Linear(config.features, CLASSES + 1)

    def features(self, x: Float[Tensor, "n 1 time"]) -> Float[Tensor, "n features"]:
        """What sets of sounds are compared by."""
        spectra = (log_mel(x)[:, None] - math.log(FLOOR)) / 5  # silence is 0, speech about 1
        # The mean over time alone: where on the frequency axis a formant lies is what tells vowels apart.
        features: Tensor = self.summary(self.body(spectra).mean(3).flatten(1))
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
                heard, labels = _with_nothings(_varied(to_float(x[rows]), training, step), digits[rows])
                loss = F.cross_entropy(network(heard), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach()
            if progress is not None:
                progress(epoch + 1, float(total) / steps)
    return network.eval()


def _varied(x: Float[Tensor, "n 1 time"], training: Training, step: int) -> Float[Tensor, "n 1 time"]:
    """At another speed and pitch, shifted in time, with some noise; all but the noise a function of (seed, step)."""
    numbers = randomness.uniform(training.seed, 2, step, torch.arange(3 * len(x), device=x.device))
    shift, speed, noise = numbers.view(3, len(x), 1, 1)
    time = (torch.arange(x.shape[-1], device=x.device) - shift * _SHIFT) * (1 + _SPEED * (2 * speed - 1))
    before = time.floor().clamp(0, x.shape[-1] - 2).long()
    moved = torch.lerp(x.gather(2, before), x.gather(2, before + 1), (time - before).clamp(0, 1))
    inside = (time >= 0) & (time <= x.shape[-1] - 1)
    varied: Tensor = torch.where(inside, moved, 0.0) + training.noise * noise * torch.randn_like(x)
    return varied


def _with_nothings(
    x: Float[Tensor, "n 1 time"], digits: Int[Tensor, " n"]
) -> tuple[Float[Tensor, "n 1 time"], Int[Tensor, " n"]]:
    """One sound in eight made into no digit: played backwards, or noise with the sound's own spectrum."""
    few = len(x) // _NOTHINGS
    backwards, spectrum = x[:few:2].flip(2), torch.fft.rfft(x[1:few:2])
    noise = torch.fft.irfft(spectrum.abs() * torch.fft.rfft(torch.randn_like(x[1:few:2])), n=x.shape[-1])
    hiss = torch.randn_like(noise)
    noise = torch.where(torch.rand_like(noise[..., :1]) < 0.5, noise, hiss)
    noise = 0.1 * noise / noise.square().mean(2, keepdim=True).sqrt().clamp(min=1e-6)
    digits = digits.clone()
    digits[:few] = NOTHING
    return torch.cat([backwards, noise, x[few:]]), digits


@dataclass(frozen=True, slots=True)
class Recognition:
    digits: Tensor  # [n], the likeliest digit, or NOTHING
    confidence: Tensor  # [n], its probability
    features: Tensor  # [n, features]

    @property
    def recognised(self) -> float:
        """The share of sounds that are some digit with a confidence above 0.9."""
        return float(self._sure.double().mean())

    @property
    def by_digit(self) -> list[int]:
        """How many of those there are of each digit."""
        return torch.bincount(self.digits[self._sure], minlength=CLASSES).tolist()

    @property
    def _sure(self) -> Bool[Tensor, " n"]:
        return (self.confidence > SURE) & (self.digits != NOTHING)


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
    exact = "donot_use_mm_for_euclid_dist"  # by inner products a copy would lie at 0.01 or so
    parts = torch.split(samples.features, _BATCH)
    return torch.cat([torch.cdist(part, others.features, compute_mode=exact).amin(1) for part in parts])
