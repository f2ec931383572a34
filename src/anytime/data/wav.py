"""Waveforms as WAV files, 16 bits at 16 kHz; written with the standard library, so that a bare machine can."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int16
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.storage import atomic_path, write_atomic
from anytime.data.audio_io import INT16_MAX, SAMPLE_RATE


def wav_bytes(x: Float[Tensor, "channel time"]) -> bytes:
    """A WAV file; what lies outside [-1, 1] is clamped."""
    samples = _samples(x)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((len(samples), 2, SAMPLE_RATE, samples.shape[1], "NONE", "not compressed"))
        file.writeframes(np.ascontiguousarray(samples.T).tobytes())
    return buffer.getvalue()


def write_wav(path: Path, x: Float[Tensor, "channel time"]) -> None:
    write_atomic(path, wav_bytes(x))


def write_wav_stream(path: Path, parts: Iterable[Float[Tensor, "1 time"]]) -> None:
    """A sound of one channel that is made a part at a time: never whole in memory, and whole or absent on disk."""
    try:
        with atomic_path(path) as partial, wave.open(str(partial), "wb") as file:
            file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", "not compressed"))
            for part in parts:
                file.writeframes(_samples(part).tobytes())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}); make room or choose another --out") from None


def _samples(x: Float[Tensor, "channel time"]) -> Int16[np.ndarray, "channel time"]:
    return (x.detach().cpu().float().clamp(-1, 1) * INT16_MAX).round().numpy().astype("<i2")
