"""One sound file to one channel of 16-bit numbers at 16 kHz, in blocks: a file of hours is never held whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Int16

from anytime.core.errors import UserError
from anytime.data.image_io import Stream

SAMPLE_RATE = 16_000
TARGET_RMS, MAX_PEAK = 0.1, 0.99
"""What a recording is scaled to: its root mean square, unless its peak would pass `PEAK`."""
LOUDNESS = f"each scaled to an RMS of {TARGET_RMS} (-20 dBFS) or a peak of {MAX_PEAK}, whichever comes first"
PREPROCESSING = f"mean of the channels, soxr to {SAMPLE_RATE} Hz, {LOUDNESS}"  # kept arrays made by another rule are not used
INT16_MAX = 32_767  # int16 of 1.0; -32,768 is left free, see recordings.ABSENT
_BLOCK = 1 << 18  # frames
_CLIP_LEVEL, _CLIP_FRACTION = 0.999, 1e-3  # so many of the samples at full scale are no accident
_SILENCE_PEAK = 1e-6  # below this peak there is nothing to scale


@dataclass(frozen=True, slots=True)
class Loudness:
    """How loud a file is, over all its channels' mean."""

    rms: float
    peak: float
    clipped: bool

    @property
    def gain(self) -> float:
        """What brings the recording to the common loudness without clipping it."""
        return 1.0 if self.peak < _SILENCE_PEAK else min(TARGET_RMS / self.rms, MAX_PEAK / self.peak)


def measure_loudness(stream: Stream, filename: str) -> Loudness:
    """The loudness of a file; one that is no sound, has no samples or holds NaN is refused."""
    frames, squares, peak, clipped_frames = 0, 0.0, 0.0, 0
    for block in _frames(stream, filename):
        if not np.isfinite(block).all():
            raise UserError(f"{filename} holds samples that are not numbers (NaN or infinity): remove or repair it")
        mono = block.mean(1)
        frames += len(mono)
        squares += float(np.square(mono, dtype=np.float64).sum())
        peak = max(peak, float(np.abs(mono).max()))
        clipped_frames += int((np.abs(block) >= _CLIP_LEVEL).any(1).sum())
    if frames == 0:
        raise UserError(f"{filename} holds no samples: remove it")
    return Loudness((squares / frames) ** 0.5, peak, clipped_frames >= max(2, _CLIP_FRACTION * frames))


def blocks(stream: Stream, filename: str, gain: float) -> Iterator[Int16[np.ndarray, " time"]]:
    """The file's samples at 16 kHz, its channels averaged, times `gain`."""
    for block in _resampled(stream, filename):
        yield (block * (gain * INT16_MAX)).round().clip(-INT16_MAX, INT16_MAX).astype(np.int16)


def file_loudness(path: Path) -> Loudness:
    """The loudness of a sound file; what cannot be read is said."""
    with _file(path) as stream:
        return measure_loudness(stream, str(path))


def read_blocks(path: Path, gain: float) -> Iterator[Int16[np.ndarray, " time"]]:
    """A sound file's samples at 16 kHz times `gain`, a block at a time."""
    with _file(path) as stream:
        yield from blocks(stream, str(path), gain)


@contextmanager
def _file(path: Path) -> Iterator[Stream]:
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): give the path of a sound") from error


def _resampled(stream: Stream, filename: str) -> Iterator[Float[np.ndarray, " time"]]:
    stream.seek(0)
    with _opened(stream, filename) as file:
        rate = file.samplerate
    stream.seek(0)
    mono = (block.mean(1) for block in _frames(stream, filename))
    if rate == SAMPLE_RATE:
        yield from mono
        return
    resampler = _module("soxr").ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
    for block in mono:
        yield resampler.resample_chunk(block)
    yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)


def _frames(stream: Stream, filename: str) -> Iterator[Float[np.ndarray, "time channel"]]:
    try:
        with _opened(stream, filename) as file:
            yield from file.blocks(_BLOCK, dtype="float32", always_2d=True)
    except RuntimeError as error:  # libsndfile's own, at damage inside the file
        raise _unreadable(filename, error) from error


def _opened(stream: Stream, filename: str) -> Any:
    soundfile = _module("soundfile")
    try:
        return soundfile.SoundFile(stream)
    except (RuntimeError, TypeError) as error:
        raise _unreadable(filename, error) from error


def _unreadable(filename: str, error: Exception) -> UserError:
    reason = str(error).rpartition(": ")[2].rstrip(".") or type(error).__name__
    return UserError(f"{filename} is not a readable sound ({reason}): remove or replace it")


def _module(name: str) -> ModuleType:
    """soundfile or soxr, which only sounds need."""
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise UserError(f"reading this sound needs {name}: pip install 'anytime[audio]'") from error
