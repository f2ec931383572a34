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
from anytime.core.storage import replacing, write_whole
from anytime.data.audio_io import RATE, SCALE


def wav_bytes(x: Float[Tensor, "channel time"]) -> bytes:
    """A WAV file; what lies outside [-1, 1] is clamped."""
    samples = _samples(x)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((len(samples), 2, RATE, samples.shape[1], "NONE", "not compressed"))
        file.writeframes(np.ascontiguousarray(samples.T).tobytes())
    return buffer.getvalue()


def write_wav(path: Path, x: Float[Tensor, "channel time"]) -> None:
    write_whole(path, wav_bytes(x))


def write_long_wav(path: Path, parts: Iterable[Float[Tensor, "1 time"]]) -> None:
    """A sound of one channel that is made a part at a time: never whole in memory, and whole or absent on disk."""
    try:
        with replacing(path) as partial, wave.open(str(partial), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
            for part in parts:
                file.writeframes(_samples(part).tobytes())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}); make room or choose another --out") from None


def _samples(x: Float[Tensor, "channel time"]) -> Int16[np.ndarray, "channel time"]:
    return (x.detach().cpu().float().clamp(-1, 1) * SCALE).round().numpy().astype("<i2")
