"""Spectrograms of audio: STFT magnitudes, log-mel, and images of them."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.data.audio_io import SAMPLE_RATE

N_MELS, WINDOW, HOP = 80, 1024, 256  # 64 ms and 16 ms at 16 kHz
FLOOR = 1e-4  # smaller magnitudes count as silence: the logarithm of rounding noise is meaningless
_HEIGHT = 64  # pixels of a spectrogram image; its width is the number of hops
_MIN_LOG10, _MAX_LOG10 = -4.0, 2.0  # log10 of the magnitudes shown as black and as white


def stft(
    x: Float[Tensor, "batch channel time"], window: int, hop: int
) -> Float[Tensor, "batch frequency frames 2"]:  # fmt: skip
    """Return the STFT with a Hann window, real and imaginary part; frames are centred on every `hop`-th sample."""
    hann = torch.hann_window(window, device=x.device)
    # Zeros past the ends: reflection would put energy where there is none.
    found = torch.stft(x.flatten(0, 1), window, hop, window=hann, center=True, pad_mode="constant", return_complex=True)
    return torch.view_as_real(found)


def magnitudes(
    x: Float[Tensor, "batch channel time"], window: int = WINDOW, hop: int = HOP
) -> Float[Tensor, "batch frequency frames"]:
    """Return |STFT|."""
    # Clamped before the root, whose derivative at zero is infinite.
    return stft(x, window, hop).square().sum(-1).clamp(min=1e-12).sqrt()


def log_mel(x: Float[Tensor, "batch channel time"]) -> Float[Tensor, "batch mel frames"]:
    """Return the natural logarithm of the magnitudes in 80 mel bands."""
    return (mel_bands().to(x.device) @ magnitudes(x)).clamp(min=FLOOR).log()


@lru_cache(maxsize=4)
def mel_bands(count: int = N_MELS, window: int = WINDOW) -> Float[Tensor, "mel frequency"]:
    """Return triangular filters evenly spaced on the mel scale, 2595 log10(1 + f / 700), from 0 to 8 kHz; each sums to one."""
    top = 2595 * torch.log10(torch.tensor(1 + SAMPLE_RATE / 2 / 700, dtype=torch.float64))
    edges = 700 * (10 ** (torch.linspace(0, 1, count + 2, dtype=torch.float64) * top / 2595) - 1)
    frequency = torch.linspace(0, SAMPLE_RATE / 2, window // 2 + 1, dtype=torch.float64)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequency - left) / (centre - left), (right - frequency) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    nearest = (frequency - centre).abs().argmin(1)  # the lowest bands are narrower than a bin: they use the nearest one
    triangles[torch.arange(count), nearest] = triangles[torch.arange(count), nearest].clamp(min=1e-3)
    return (triangles / triangles.sum(1, keepdim=True)).float()


def spectrogram_images(x: Float[Tensor, "n channel time"]) -> Float[Tensor, "n 1 height width"]:
    """Return spectrograms in [0, 1], time to the right and mel frequency upwards."""
    spectra = (mel_bands(_HEIGHT).to(x.device) @ magnitudes(x)).clamp(min=10**_MIN_LOG10).log10()
    scaled = ((spectra - _MIN_LOG10) / (_MAX_LOG10 - _MIN_LOG10)).clamp(0, 1)
    return scaled[:, None, :, :].flip(2)
