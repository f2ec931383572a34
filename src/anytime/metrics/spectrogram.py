"""Short-time spectra of waveforms: magnitudes, log-mel, and a spectrogram as a picture."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.data.audio_io import SAMPLE_RATE

N_MELS, WINDOW, HOP = 80, 1024, 256  # 64 ms and 16 ms at 16 kHz
FLOOR = 1e-4  # magnitudes below it are silence: the logarithm of rounding noise says nothing
RESOLUTIONS = ((512, 128), (1024, 256), (2048, 512))
"""Windows and hops, in samples, of the multi-resolution STFT distance."""
_HEIGHT = 64  # pixels of a spectrogram; it is as many wide as there are hops
_MIN_LOG10, _MAX_LOG10 = -4.0, 2.0  # log10 of the magnitudes shown as black and as white


def stft(
    x: Float[Tensor, "batch channel time"], window: int, hop: int
) -> Float[Tensor, "batch frequency frames 2"]:  # fmt: skip
    """The STFT with a Hann window, real and imaginary part; frames centred on every `hop`-th sample, zeros beyond the ends."""
    hann = torch.hann_window(window, device=x.device)
    # Zeros rather than mirrored sound, which would put energy where there is none.
    found = torch.stft(x.flatten(0, 1), window, hop, window=hann, center=True, pad_mode="constant", return_complex=True)
    return torch.view_as_real(found)


def magnitudes(
    x: Float[Tensor, "batch channel time"], window: int = WINDOW, hop: int = HOP
) -> Float[Tensor, "batch frequency frames"]:
    """|STFT|."""
    # A floor under the root: its derivative at zero is infinite.
    return stft(x, window, hop).square().sum(-1).clamp(min=1e-12).sqrt()


def stft_distance(
    x: Float[Tensor, "batch channel time"],
    y: Float[Tensor, "batch channel time"],
    mask: Float[Tensor, "batch channel time"],
    floor: float = FLOOR,
) -> Float[Tensor, " batch"]:
    """Mean over three resolutions of ‖|X| − |Y|‖ / ‖|X|‖ + mean |log |X| − log |Y||, X and Y the short-time spectra.

    Where `mask` is 0 both sounds are silenced, and frames centred there do not count. Below `floor` all magnitudes are alike.
    """
    terms = []
    for window, hop in RESOLUTIONS:
        valid = frame_mask(mask, hop)
        first, second = (magnitudes(w * mask, window, hop) * valid[:, None] for w in (x, y))
        convergence = (first - second).norm(dim=(1, 2)) / first.norm(dim=(1, 2)).clamp(min=FLOOR)
        logs = (first.clamp(min=floor).log() - second.clamp(min=floor).log()).abs().mean(1)
        terms.append(convergence + masked_mean(logs, valid))
    return torch.stack(terms).mean(0)


def frame_mask(mask: Float[Tensor, "batch channel time"], hop: int) -> Float[Tensor, "batch frames"]:
    """1 for every frame whose centre lies on a sample; the one past the end has none."""
    centres = mask[:, 0, ::hop]
    return torch.cat([centres, centres.new_zeros(len(mask), 1 + mask.shape[-1] // hop - centres.shape[1])], dim=1)


def masked_mean(values: Float[Tensor, "batch frames"], valid: Float[Tensor, "batch frames"]) -> Float[Tensor, " batch"]:
    """The mean of each row where `kept` is 1."""
    return (values * valid).sum(1) / valid.sum(1).clamp(min=1)


def log_mel(x: Float[Tensor, "batch channel time"]) -> Float[Tensor, "batch mel frames"]:
    """Natural logarithm of the magnitudes in 80 mel bands."""
    return (mel_bands().to(x.device) @ magnitudes(x)).clamp(min=FLOOR).log()


@lru_cache(maxsize=4)
def mel_bands(count: int = N_MELS, window: int = WINDOW) -> Float[Tensor, "mel frequency"]:
    """Triangles evenly spaced on the mel scale, 2595 log10(1 + f / 700), from 0 to 8 kHz; each sums to one."""
    top = 2595 * torch.log10(torch.tensor(1 + SAMPLE_RATE / 2 / 700, dtype=torch.float64))
    edges = 700 * (10 ** (torch.linspace(0, 1, count + 2, dtype=torch.float64) * top / 2595) - 1)
    frequency = torch.linspace(0, SAMPLE_RATE / 2, window // 2 + 1, dtype=torch.float64)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequency - left) / (centre - left), (right - frequency) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    nearest = (frequency - centre).abs().argmin(1)  # the lowest bands are narrower than a bin: they take the nearest one
    triangles[torch.arange(count), nearest] = triangles[torch.arange(count), nearest].clamp(min=1e-3)
    return (triangles / triangles.sum(1, keepdim=True)).float()


def spectrogram_images(x: Float[Tensor, "n channel time"]) -> Float[Tensor, "n 1 height width"]:
    """Spectrograms in [0, 1], time to the right and frequency (mel) upwards."""
    spectra = (mel_bands(_HEIGHT).to(x.device) @ magnitudes(x)).clamp(min=10**_MIN_LOG10).log10()
    scaled = ((spectra - _MIN_LOG10) / (_MAX_LOG10 - _MIN_LOG10)).clamp(0, 1)
    return scaled[:, None, :, :].flip(2)
