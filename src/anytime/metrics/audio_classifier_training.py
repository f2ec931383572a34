"""How the listening network is trained: on spoken digits to tell which, on other sounds to tell what was done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int16
from torch import Tensor

from anytime.core import random
from anytime.core.errors import UserError
from anytime.data.loader import batch_indices, to_float
from anytime.metrics.audio_classifier import AudioClassifier, AudioClassifierConfig
from anytime.training.schedules import decayed_lr

TRANSFORMS = ("as it is", "backwards", "halves swapped", "a third faster", "a third slower")
"""What is done to sounds without labels; noise of their own spectrum is none of these."""
_SHIFT = 1600  # samples, a tenth of a second: where a digit begins says nothing of which it is
_SPEED_PERTURB = 0.15  # faster or slower, higher or lower by this share: other voices
_GAIN = 2.0  # louder or softer by this factor at most: samples are not scaled as recordings are
_NEGATIVE_EVERY = 6  # one sound in so many is made into no digit
_SEGMENTS = range(6, 21)  # into so many pieces a sound is cut, of 48 to 160 ms
_WARMUP_DIVISOR = 10  # one step in so many comes before the rate is at its height


@dataclass(frozen=True, kw_only=True)
class AudioClassifierTraining:
    """How the network is trained: AdamW, its rate rising in a line and falling in a cosine."""

    epochs: int = 20
    batch: int = 128
    lr: float = 3e-3
    noise: float = 0.01
    """Largest noise laid over a sound, whose RMS is about 0.1."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.lr > 0 or self.noise < 0:
            raise UserError(f"a recogniser needs epochs, batch and rate above zero, not {self.epochs}, {self.batch}, {self.lr}")


def train_audio_classifier(
    x: Int16[Tensor, "n 1 time"],
    digits: Int[Tensor, " n"] | None,
    training: AudioClassifierTraining,
    config: AudioClassifierConfig | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> AudioClassifier:
    """Train on the device that `x` lies on; without digits, to tell the manners apart. `progress` gets epoch and mean loss."""
    config = config or AudioClassifierConfig()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(training.seed)
        network = AudioClassifier(config).to(x.device).train()
        network.body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a fifth faster on a CPU
        steps = len(x) // min(training.batch, len(x))
        optimizer = torch.optim.AdamW(network.parameters(), training.lr)
        lr_schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(lr_factor, steps=training.epochs * steps))
        for epoch in range(training.epochs):
            total = torch.zeros((), device=x.device)
            for step in range(epoch * steps, (epoch + 1) * steps):
                rows = batch_indices(len(x), training.batch, training.seed, step).to(x.device)
                logits, targets = _forward(network, to_float(x[rows]), None if digits is None else digits[rows], training, step)
                loss = F.cross_entropy(logits, targets)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                lr_schedule.step()
                total += loss.detach()
            if progress is not None:
                progress(epoch + 1, float(total) / steps)
    network.body.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # as one read from a file
    return network.eval()


def lr_factor(step: int, steps: int) -> float:
    """How much of the highest rate a step has.

    >>> [round(lr_factor(step, 20), 2) for step in (0, 1, 2, 11, 20)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warmup_steps = max(1, steps // _WARMUP_DIVISOR)
    return (
        (step + 1) / warmup_steps
        if step < warmup_steps
        else decayed_lr(1.0, "cosine", step - warmup_steps, max(1, steps - warmup_steps))
    )


def _forward(
    network: AudioClassifier,
    x: Float[Tensor, "n 1 time"],
    digits: Int[Tensor, " n"] | None,
    training: AudioClassifierTraining,
    step: int,
) -> tuple[Float[Tensor, "n classes"], Int[Tensor, " n"]]:
    """What the network says of one batch, and what would be right."""
    labels = sample_transforms(len(x), training.seed, step).to(x.device) if digits is None else digits
    augmented = apply_transforms(x, labels) if digits is None else x
    augmented = _augment(augmented, training, step)
    augmented, labels = _with_negatives(augmented, labels, network.config.classes, step, spoken_digits=digits is not None)
    return network(augmented), labels


def sample_transforms(count: int, seed: int, step: int) -> Int[Tensor, " count"]:
    """A manner for each of `count` sounds, by chance."""
    return (random.uniform(seed, 3, step, torch.arange(count)) * len(TRANSFORMS)).long()


def apply_transforms(x: Float[Tensor, "n 1 time"], transforms: Int[Tensor, " n"]) -> Float[Tensor, "n 1 time"]:
    """Each sound as its manner says."""
    time = x.shape[-1]
    same = torch.ones(len(x), 1, 1, device=x.device)
    transformed = (
        x,
        x.flip(2),
        x.roll(time // 2, 2),
        _shift_and_stretch(x, 0 * same, 4 / 3 * same),
        _shift_and_stretch(x, 0 * same, 3 / 4 * same),
    )
    return torch.stack(transformed)[transforms, torch.arange(len(x), device=x.device)]


def _augment(x: Float[Tensor, "n 1 time"], training: AudioClassifierTraining, step: int) -> Float[Tensor, "n 1 time"]:
    """At another speed and pitch, shifted in time, louder or softer, with some noise; all but the noise by (seed, step)."""
    numbers = random.uniform(training.seed, 2, step, torch.arange(4 * len(x), device=x.device))
    shift, speed, noise, gain = numbers.view(4, len(x), 1, 1)
    shifted = _shift_and_stretch(x, shift * _SHIFT, 1 + _SPEED_PERTURB * (2 * speed - 1))
    augmented: Tensor = (shifted + training.noise * noise * torch.randn_like(x)) * _GAIN ** (2 * gain - 1)
    return augmented


def _shift_and_stretch(
    x: Float[Tensor, "n 1 time"], shift: Float[Tensor, "n 1 1"], speed: Float[Tensor, "n 1 1"]
) -> Float[Tensor, "n 1 time"]:
    """Sounds that begin later by `shift` samples and are played at another speed, by lines between the samples."""
    time = (torch.arange(x.shape[-1], device=x.device) - shift) * speed
    before = time.floor().clamp(0, x.shape[-1] - 2).long()
    shifted = torch.lerp(x.gather(2, before), x.gather(2, before + 1), (time - before).clamp(0, 1))
    return torch.where((time >= 0) & (time <= x.shape[-1] - 1), shifted, 0.0)


def _with_negatives(
    x: Float[Tensor, "n 1 time"], labels: Int[Tensor, " n"], negative_class: int, step: int, *, spoken_digits: bool
) -> tuple[Float[Tensor, "n 1 time"], Int[Tensor, " n"]]:
    """One sound in six made into none of the classes: a digit backwards, one in shuffled pieces, or noise, a third each."""
    few = len(x) // _NEGATIVE_EVERY
    third = few // 3 if spoken_digits else 0  # without digits only noise: backwards and swapped are classes of their own there
    backwards, whole, other = x[:third].flip(2), x[third : 2 * third], x[2 * third : few]
    labels = labels.clone()
    labels[:few] = negative_class
    segments = shuffle_segments(whole, x.shape[-1] // _SEGMENTS[step % len(_SEGMENTS)])
    return torch.cat([backwards, segments, _noise(other), x[few:]]), labels


def shuffle_segments(x: Float[Tensor, "n 1 time"], length: int) -> Float[Tensor, "n 1 time"]:
    """Sounds cut into pieces of so many samples, in an order by chance; what is left over stays at the end."""
    count = x.shape[-1] // length
    order = torch.rand(len(x), count, device=x.device).argsort(1)
    segments = x[..., : count * length].unflatten(2, (count, length))
    shuffled = segments.gather(2, order[:, None, :, None].expand_as(segments)).flatten(2)
    return torch.cat([shuffled, x[..., count * length :]], 2)


def _noise(x: Float[Tensor, "n 1 time"]) -> Float[Tensor, "n 1 time"]:
    """White, or with the spectrum of the sound; half of it about as loud as speech, a tenth silence, the rest in between."""
    kind, loudness, level = torch.rand(3, len(x), 1, 1, device=x.device)
    white = torch.randn_like(x)
    spectrum_matched = torch.fft.irfft(torch.fft.rfft(x).abs() * torch.fft.rfft(white), n=x.shape[-1])
    noise = torch.where(kind < 0.5, spectrum_matched, white)
    softer = torch.where(loudness < 0.9, 0.2 * 10 ** (-4 * level), 0.0)
    return noise / noise.square().mean(2, keepdim=True).sqrt().clamp(min=1e-6) * torch.where(loudness < 0.5, 0.1, softer)
