"""Waveforms as WAV files, 16 bits at 16 kHz; written with the standard library, so that a bare machine can."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
from jaxtyping import Float
from torch import Tensor

from anytime.data.waves import RATE, SCALE
from anytime.storage import write_whole


def wav_bytes(x: Float[Tensor, "channel time"]) -> bytes:
    """A WAV file; what lies outside [-1, 1] is clamped."""
    samples = (x.detach().cpu().float().clamp(-1, 1) * SCALE).round().numpy().astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((len(samples), 2, RATE, samples.shape[1], "NONE", "not compressed"))
        file.writeframes(np.ascontiguousarray(samples.T).tobytes())
    return buffer.getvalue()


def write_wav(path: Path, x: Float[Tensor, "channel time"]) -> None:
    write_whole(path, wav_bytes(x))
