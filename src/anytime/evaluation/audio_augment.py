"""Training examples of the audio classifier: augmented clips, transformed clips, and clips of no class."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor

from anytime.data.loader import to_float
from anytime.metrics.classifier import Maps, spectrogram_maps

TRANSFORMS = ("unchanged", "reversed", "halves swapped", "a third faster", "a quarter slower")
"""Classes of the transform classifier, which serves data without labels; noise is of no class."""
NOISE = 0.01  # largest noise added to a clip, whose RMS is about 0.1
_SHIFT = 1600  # samples, a tenth of a second
_SPEED_PERTURB = 0.15  # relative change of speed and pitch: other speakers
_GAIN = 2.0  # largest factor of loudness: samples are not normalised as recordings are
_NEGATIVE_EVERY = 6  # one clip in six becomes a negative example
_SEGMENTS = (6, 20)  # a shuffled clip has 6 to 20 segments, of 48 to 160 ms
_MAX_MASK = 0.15  # largest masked fraction of the mel bands and of the frames (SpecAugment)

Clips = Float[Tensor, "n 1 time"]


def augment_digits(
    x: Int16[Tensor, "n 1 time"], digits: Int[Tensor, " n"], negative: int, generator: torch.Generator
) -> tuple[Maps, Int[Tensor, " n"]]:
    """Augment spoken digits; one clip in six becomes reversed speech, shuffled segments or noise, of the negative class."""
    clips, few = _augment(to_float(x), generator), len(x) // _NEGATIVE_EVERY
    third = few // 3
    fewest, most = _SEGMENTS
    count = int(torch.randint(fewest, most + 1, (1,), generator=generator, device=x.device))
    shuffled = shuffle_segments(clips[third : 2 * third], x.shape[-1] // count, generator)
    negatives = [clips[:third].flip(2), shuffled, _noise(clips[2 * third : few], generator)]
    return _masked_maps(torch.cat([*negatives, clips[few:]]), generator), _with_negatives(digits, few, negative)


def augment_transforms(
    x: Int16[Tensor, "n 1 time"], labels: Int[Tensor, " n"], negative: int, generator: torch.Generator
) -> tuple[Maps, Int[Tensor, " n"]]:
    """Transform clips at random, for a classifier of the transforms; one clip in six becomes noise, of the negative class."""
    transforms = torch.randint(len(TRANSFORMS), (len(x),), generator=generator, device=x.device)
    clips, few = _augment(apply_transforms(to_float(x), transforms), generator), len(x) // _NEGATIVE_EVERY
    clips = torch.cat([_noise(clips[:few], generator), clips[few:]])
    return _masked_maps(clips, generator), _with_negatives(transforms, few, negative)


def apply_transforms(x: Clips, transforms: Int[Tensor, " n"]) -> Clips:
    """Apply to each clip the transform of its label."""
    same = torch.ones(len(x), 1, 1, device=x.device)
    faster, slower = (_shift_and_stretch(x, 0 * same, speed * same) for speed in (4 / 3, 3 / 4))
    transformed = torch.stack([x, x.flip(2), x.roll(x.shape[-1] // 2, 2), faster, slower])
    return transformed[transforms, torch.arange(len(x), device=x.device)]


def shuffle_segments(x: Clips, length: int, generator: torch.Generator) -> Clips:
    """Cut clips into segments of `length` samples and shuffle them; the remainder stays at the end."""
    count = x.shape[-1] // length
    order = torch.rand(len(x), count, generator=generator, device=x.device).argsort(1)
    segments = x[..., : count * length].unflatten(2, (count, length))
    shuffled = segments.gather(2, order[:, None, :, None].expand_as(segments)).flatten(2)
    return torch.cat([shuffled, x[..., count * length :]], 2)


def _with_negatives(labels: Int[Tensor, " n"], few: int, negative: int) -> Int[Tensor, " n"]:
    return torch.cat([torch.full_like(labels[:few], negative), labels[few:]])


def _augment(x: Clips, generator: torch.Generator) -> Clips:
    """Change speed and pitch, shift in time, add noise, change the loudness."""
    shift, speed, noise, gain = torch.rand(4, len(x), 1, 1, generator=generator, device=x.device)
    shifted = _shift_and_stretch(x, shift * _SHIFT, 1 + _SPEED_PERTURB * (2 * speed - 1))
    augmented: Tensor = (shifted + NOISE * noise * _white_noise(x, generator)) * _GAIN ** (2 * gain - 1)
    return augmented


def _shift_and_stretch(x: Clips, shift: Float[Tensor, "n 1 1"], speed: Float[Tensor, "n 1 1"]) -> Clips:
    """Delay clips by `shift` samples and play them at another speed, by linear interpolation."""
    time = (torch.arange(x.shape[-1], device=x.device) - shift) * speed
    before = time.floor().clamp(0, x.shape[-1] - 2).long()
    shifted = torch.lerp(x.gather(2, before), x.gather(2, before + 1), (time - before).clamp(0, 1))
    return torch.where((time >= 0) & (time <= x.shape[-1] - 1), shifted, 0.0)


def _noise(x: Clips, generator: torch.Generator) -> Clips:
    """White noise or noise with the clip's spectrum; half of it about as loud as speech, a tenth silent, the rest softer."""
    if not len(x):  # of fewer than six clips; the Fourier transform refuses an empty batch
        return x
    kind, loudness, level = torch.rand(3, len(x), 1, 1, generator=generator, device=x.device)
    white = _white_noise(x, generator)
    spectrum_matched = torch.fft.irfft(torch.fft.rfft(x).abs() * torch.fft.rfft(white), n=x.shape[-1])
    noise = torch.where(kind < 0.5, spectrum_matched, white)
    softer = torch.where(loudness < 0.9, 0.2 * 10 ** (-4 * level), 0.0)
    return noise / noise.square().mean(2, keepdim=True).sqrt().clamp(min=1e-6) * torch.where(loudness < 0.5, 0.1, softer)


def _white_noise(x: Clips, generator: torch.Generator) -> Clips:
    return torch.randn(x.shape, generator=generator, device=x.device)


def _masked_maps(x: Clips, generator: torch.Generator) -> Maps:
    """Return spectrograms with two masked stretches of bands and two of frames (SpecAugment)."""
    maps = spectrogram_maps(x)
    for axis in (2, 3):
        side = maps.shape[axis]
        position = torch.arange(side, device=x.device).view((side, 1) if axis == 2 else (side,))
        for _ in range(2):
            width, start = _MAX_MASK * torch.rand(2, len(x), 1, 1, 1, generator=generator, device=x.device)
            begin = start / _MAX_MASK * side * (1 - width)
            maps = maps * ((position < begin) | (position >= begin + side * width))
    return maps
