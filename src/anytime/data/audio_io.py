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

RATE = 16_000
LEVEL, PEAK = 0.1, 0.99
"""What a recording is scaled to: its root mean square, unless its peak would pass `PEAK`."""
LOUDNESS = f"each scaled to an RMS of {LEVEL} (-20 dBFS) or a peak of {PEAK}, whichever comes first"
RULE = f"mean of the channels, soxr to {RATE} Hz, {LOUDNESS}"  # kept arrays made by another rule are not used
SCALE = 32_767  # int16 of 1.0; -32,768 is left free, see recordings.ABSENT
_BLOCK = 1 << 18  # frames
_CLIPPED, _SHARE = 0.999, 1e-3  # so many of the samples at full scale are no accident
_SILENT = 1e-6  # below this peak there is nothing to scale


@dataclass(frozen=True, slots=True)
class Level:
    """How loud a file is, over all its channels' mean."""

    rms: float
    peak: float
    clipped: bool

    @property
    def gain(self) -> float:
        """What brings the recording to the common loudness without clipping it."""
        return 1.0 if self.peak < _SILENT else min(LEVEL / self.rms, PEAK / self.peak)


def measure(stream: Stream, label: str) -> Level:
    """The loudness of a file; one that is no sound, has no samples or holds NaN is refused."""
    frames, squares, peak, full = 0, 0.0, 0.0, 0
    for block in _frames(stream, label):
        if not np.isfinite(block).all():
            raise UserError(f"{label} holds samples that are not numbers (NaN or infinity): remove or repair it")
        mono = block.mean(1)
        frames += len(mono)
        squares += float(np.square(mono, dtype=np.float64).sum())
        peak = max(peak, float(np.abs(mono).max()))
        full += int((np.abs(block) >= _CLIPPED).any(1).sum())
    if frames == 0:
        raise UserError(f"{label} holds no samples: remove it")
    return Level((squares / frames) ** 0.5, peak, full >= max(2, _SHARE * frames))


def blocks(stream: Stream, label: str, gain: float) -> Iterator[Int16[np.ndarray, " time"]]:
    """The file's samples at 16 kHz, its channels averaged, times `gain`."""
    for block in _resampled(stream, label):
        yield (block * (gain * SCALE)).round().clip(-SCALE, SCALE).astype(np.int16)


def level_of(path: Path) -> Level:
    """The loudness of a sound file; what cannot be read is said."""
    with _file(path) as stream:
        return measure(stream, str(path))


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


def _resampled(stream: Stream, label: str) -> Iterator[Float[np.ndarray, " time"]]:
    stream.seek(0)
    with _opened(stream, label) as file:
        rate = file.samplerate
    stream.seek(0)
    mono = (block.mean(1) for block in _frames(stream, label))
    if rate == RATE:
        yield from mono
        return
    resampler = _module("soxr").ResampleStream(rate, RATE, 1, dtype="float32")
    for block in mono:
        yield resampler.resample_chunk(block)
    yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)


def _frames(stream: Stream, label: str) -> Iterator[Float[np.ndarray, "time channel"]]:
    try:
        with _opened(stream, label) as file:
            yield from file.blocks(_BLOCK, dtype="float32", always_2d=True)
    except RuntimeError as error:  # libsndfile's own, at damage inside the file
        raise _unreadable(label, error) from error


def _opened(stream: Stream, label: str) -> Any:
    soundfile = _module("soundfile")
    try:
        return soundfile.SoundFile(stream)
    except (RuntimeError, TypeError) as error:
        raise _unreadable(label, error) from error


def _unreadable(label: str, error: Exception) -> UserError:
    reason = str(error).rpartition(": ")[2].rstrip(".") or type(error).__name__
    return UserError(f"{label} is not a readable sound ({reason}): remove or replace it")


def _module(name: str) -> ModuleType:
    """soundfile or soxr, which only sounds need."""
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise UserError(f"reading this sound needs {name}: pip install 'anytime[audio]'") from error
