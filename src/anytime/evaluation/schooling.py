"""How the listening network is trained: on spoken digits to tell which, on other sounds to tell what was done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int16
from torch import Tensor

from anytime import randomness
from anytime.data.loader import batch_indices, to_float
from anytime.errors import UserError
from anytime.evaluation.recogniser import Recogniser, RecogniserConfig

MANNERS = ("as it is", "backwards", "halves swapped", "a third faster", "a third slower")
"""What is done to sounds without labels; noise of their own spectrum is none of these."""
_SHIFT = 1600  # samples, a tenth of a second: where a digit begins says nothing of which it is
_SPEED = 0.15  # faster or slower, higher or lower by this share: other voices
_NOTHINGS = 8  # one sound in so many is made into no digit


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the network is trained: Adam, its rate falling in a cosine."""

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


def train_recogniser(
    x: Int16[Tensor, "n 1 time"],
    digits: Int[Tensor, " n"] | None,
    training: Training,
    config: RecogniserConfig | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Recogniser:
    """Train on the device that `x` lies on; without digits, to tell the manners apart. `progress` gets epoch and mean loss."""
    config = config or RecogniserConfig()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(training.seed)
        network = Recogniser(config).to(x.device).train()
        steps = len(x) // min(training.batch, len(x))
        optimizer = torch.optim.Adam(network.parameters(), training.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, training.epochs * steps)
        for epoch in range(training.epochs):
            total = torch.zeros((), device=x.device)
            for step in range(epoch * steps, (epoch + 1) * steps):
                rows = batch_indices(len(x), training.batch, training.seed, step).to(x.device)
                said, right = _lesson(network, to_float(x[rows]), None if digits is None else digits[rows], training, step)
                loss = F.cross_entropy(said, right)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach()
            if progress is not None:
                progress(epoch + 1, float(total) / steps)
    return network.eval()


def _lesson(
    network: Recogniser, x: Float[Tensor, "n 1 time"], digits: Int[Tensor, " n"] | None, training: Training, step: int
) -> tuple[Float[Tensor, "n classes"], Int[Tensor, " n"]]:
    """What the network says of one batch, and what would be right."""
    labels = manners_of(len(x), training.seed, step).to(x.device) if digits is None else digits
    heard = in_manner(x, labels) if digits is None else x
    heard, labels = _with_nothings(_varied(heard, training, step), labels, network.config.classes, spoken=digits is not None)
    return network(heard), labels


def manners_of(count: int, seed: int, step: int) -> Int[Tensor, " count"]:
    """A manner for each of `count` sounds, by chance."""
    return (randomness.uniform(seed, 3, step, torch.arange(count)) * len(MANNERS)).long()


def in_manner(x: Float[Tensor, "n 1 time"], manners: Int[Tensor, " n"]) -> Float[Tensor, "n 1 time"]:
    """Each sound as its manner says."""
    time = x.shape[-1]
    same = torch.ones(len(x), 1, 1, device=x.device)
    versions = (x, x.flip(2), x.roll(time // 2, 2), _moved(x, 0 * same, 4 / 3 * same), _moved(x, 0 * same, 3 / 4 * same))
    return torch.stack(versions)[manners, torch.arange(len(x), device=x.device)]


def _varied(x: Float[Tensor, "n 1 time"], training: Training, step: int) -> Float[Tensor, "n 1 time"]:
    """At another speed and pitch, shifted in time, with some noise; all but the noise a function of (seed, step)."""
    numbers = randomness.uniform(training.seed, 2, step, torch.arange(3 * len(x), device=x.device))
    shift, speed, noise = numbers.view(3, len(x), 1, 1)
    moved = _moved(x, shift * _SHIFT, 1 + _SPEED * (2 * speed - 1))
    varied: Tensor = moved + training.noise * noise * torch.randn_like(x)
    return varied


def _moved(
    x: Float[Tensor, "n 1 time"], shift: Float[Tensor, "n 1 1"], speed: Float[Tensor, "n 1 1"]
) -> Float[Tensor, "n 1 time"]:
    """Sounds that begin later by `shift` samples and are played at another speed, by lines between the samples."""
    time = (torch.arange(x.shape[-1], device=x.device) - shift) * speed
    before = time.floor().clamp(0, x.shape[-1] - 2).long()
    moved = torch.lerp(x.gather(2, before), x.gather(2, before + 1), (time - before).clamp(0, 1))
    return torch.where((time >= 0) & (time <= x.shape[-1] - 1), moved, 0.0)


def _with_nothings(
    x: Float[Tensor, "n 1 time"], labels: Int[Tensor, " n"], nothing: int, *, spoken: bool
) -> tuple[Float[Tensor, "n 1 time"], Int[Tensor, " n"]]:
    """One sound in eight made into none of the classes: a digit backwards, or noise, some with the sound's own spectrum."""
    few = len(x) // _NOTHINGS
    backwards, spectrum = x[:few:2].flip(2), torch.fft.rfft(x[1:few:2])
    if not spoken:  # backwards is a class of its own there
        backwards = 0.1 * torch.randn_like(backwards)
    noise = torch.fft.irfft(spectrum.abs() * torch.fft.rfft(torch.randn_like(x[1:few:2])), n=x.shape[-1])
    hiss = torch.randn_like(noise)
    noise = torch.where(torch.rand_like(noise[..., :1]) < 0.5, noise, hiss)
    noise = 0.1 * noise / noise.square().mean(2, keepdim=True).sqrt().clamp(min=1e-6)
    labels = labels.clone()
    labels[:few] = nothing
    return torch.cat([backwards, noise, x[few:]]), labels
