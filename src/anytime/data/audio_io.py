"""Audio files: read as mono int16 at 16 kHz, one file or many, and written as WAV.

Files are read and resampled block by block, so a file of hours is never held in memory; one longer than `MAX_HOURS` is
refused, because a few kilobytes of a compressed format can hold days of silence.
"""

from __future__ import annotations

import io
import tempfile
import wave
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int16, Int64
from torch import Tensor

from anytime.core.errors import UserError, reason
from anytime.core.progress import track
from anytime.core.storage import atomic_path, write_atomic
from anytime.data.files import BadFileError, DataFile, Stream, decoded_path
from anytime.data.recordings import Recordings, segment_recordings

SUFFIXES = {".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff", ".au", ".caf", ".w64"}
SAMPLE_RATE = 16_000
MIN_RATE, MAX_RATE, MAX_HOURS = 1_000, 768_000, 24
"""Sample rates, in Hz, and the duration of files that are read."""
TARGET_RMS, MAX_PEAK = 0.1, 0.99
"""The RMS that a recording is scaled to, unless its peak would exceed `MAX_PEAK`."""
LOUDNESS = f"each scaled to an RMS of {TARGET_RMS} (-20 dBFS) or a peak of {MAX_PEAK}, whichever comes first"
PREPROCESSING = f"mean of the channels, soxr to {SAMPLE_RATE} Hz, {LOUDNESS}"  # arrays cached by another rule are not used
INT16_MAX = 32_767  # int16 of 1.0; -32,768 marks padding, see recordings.PADDING
_MAGIC_NUMBERS = (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b".snd", b"caff", b"riff")
_CONTAINERS = ((b"RIFF", b"WAVE"), (b"RF64", b"WAVE"), (b"FORM", b"AIFF"), (b"FORM", b"AIFC"))
_AudioFile = Any  # soundfile.SoundFile: imported only where audio is read
_PACKAGES = "soundfile soxr"  # the extra `audio`
_BLOCK = 1 << 18  # samples, all channels together
_CLIP_LEVEL, _CLIP_FRACTION = 0.999, 1e-3  # a file is clipped if this fraction of its samples is at full scale
_MAX_SAMPLE = 1e10  # above any 32-bit integer stored as a float; beyond it, sums overflow
_SILENCE_PEAK = 1e-6  # below this peak there is nothing to scale


def is_audio(head: bytes) -> bool:
    """Return whether a file that begins with these 12 bytes is audio."""
    return (head[:4], head[8:12]) in _CONTAINERS or head.startswith(_MAGIC_NUMBERS)


@dataclass(frozen=True, slots=True)
class Loudness:
    """The loudness of a file, measured on the mean of its channels."""

    rms: float
    peak: float
    clipped: bool

    @property
    def gain(self) -> float:
        """The factor that brings the recording to the common loudness without clipping it."""
        return 1.0 if self.peak < _SILENCE_PEAK else min(TARGET_RMS / self.rms, MAX_PEAK / self.peak)


def measure_loudness(file: DataFile) -> Loudness:
    """Measure the loudness of a file; refuse one that is not audio, has no samples or holds NaN."""
    frames, squares, peak, clipped_frames = 0, 0.0, 0.0, 0
    with _open(file) as (blocks, _):
        for block in blocks:
            if not (np.abs(block) <= _MAX_SAMPLE).all():
                raise BadFileError(
                    f"{file.path} holds samples that are not numbers (NaN, infinity or huge): remove or repair it"
                )
            mono = block.mean(1)
            frames += len(mono)
            squares += float(np.square(mono, dtype=np.float64).sum())
            peak = max(peak, float(np.abs(mono).max()))
            clipped_frames += int((np.abs(block) >= _CLIP_LEVEL).any(1).sum())
    if frames == 0:
        raise BadFileError(f"{file.path} holds no samples: remove it")
    return Loudness((squares / frames) ** 0.5, peak, clipped_frames >= max(2, _CLIP_FRACTION * frames))


def check_audio(file: DataFile) -> None:
    """Refuse a file that cannot be used: unreadable, empty, or shorter than one sample at 16 kHz."""
    gain = measure_loudness(file).gain
    if not sum(len(block) for block in read_blocks(file, gain)):
        raise BadFileError(f"{file.path} is shorter than one sample at 16 kHz: remove it")


def read_blocks(file: DataFile, gain: float) -> Iterator[Int16[np.ndarray, " time"]]:
    """Yield the samples at 16 kHz, averaged over channels and multiplied by `gain`."""
    with _open(file) as (blocks, rate):
        for block in _resample((block.mean(1) for block in blocks), rate):
            yield (block * (gain * INT16_MAX)).round().clip(-INT16_MAX, INT16_MAX).astype(np.int16)


def _resample(blocks: Iterable[Float[np.ndarray, " time"]], rate: int) -> Iterator[Float[np.ndarray, " time"]]:
    if rate == SAMPLE_RATE:
        yield from blocks
        return
    resampler = _module("soxr").ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
    for block in blocks:
        yield resampler.resample_chunk(block)
    yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)


@contextmanager
def _open(file: DataFile) -> Iterator[tuple[Iterator[Float[np.ndarray, "time channel"]], int]]:
    """Yield blocks and sample rate; libsndfile reports damage when it opens a file or later, when it reads."""
    soundfile = _module("soundfile")
    with file.open() as stream:
        try:
            with soundfile.SoundFile(_SafeStream(stream)) as audio:
                _check_rate(file, audio.samplerate)
                yield _blocks(file, audio), audio.samplerate
        except UserError:
            raise
        except (RuntimeError, TypeError, ValueError, AssertionError, MemoryError) as error:
            cause = reason(error).rpartition(": ")[2] or type(error).__name__
            raise BadFileError(f"{file.path} is not a readable audio file ({cause}): remove or replace it") from error


def _check_rate(file: DataFile, rate: int) -> None:
    if not MIN_RATE <= rate <= MAX_RATE:
        range_ = f"from {MIN_RATE:,} to {MAX_RATE:,} Hz"
        raise BadFileError(f"{file.path} has a sample rate of {rate:,} Hz, and those {range_} are read: remove or convert it")


def _blocks(file: DataFile, audio: _AudioFile) -> Iterator[Float[np.ndarray, "time channel"]]:
    """Yield blocks to the end of the file, or until they exceed `MAX_HOURS`.

    Not `audio.blocks`: it trusts the length in the header, and repeats samples if the file is shorter.
    """
    size, frames = max(1, _BLOCK // audio.channels), 0
    while len(block := audio.read(size, dtype="float32", always_2d=True)):
        frames += len(block)
        if frames > MAX_HOURS * 3600 * audio.samplerate:
            raise BadFileError(f"{file.path} is longer than {MAX_HOURS} hours: split it or remove it")
        yield block


class _SafeStream:
    """A stream for libsndfile, which cannot handle exceptions: a seek to an impossible place leaves it where it is."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.tell, self.read, self.readinto = stream.tell, stream.read, stream.readinto

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to `offset` if it exists, and return the position."""
        try:
            return self._stream.seek(offset, whence)
        except (OSError, ValueError):
            return self._stream.tell()


def _module(name: str) -> ModuleType:
    """Import soundfile or soxr, which only audio needs."""
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        # The packages and not an extra of ours: whoever owns our name on a package index would be installed.
        raise UserError(f"reading this audio file needs {name}: run `pip install {_PACKAGES}`") from error


def read_recordings(files: Sequence[DataFile], cache: Path) -> tuple[Recordings, int]:
    """Return recordings of all files at 16 kHz, from the cached array if there is one, and how many files are clipped."""
    path = decoded_path(cache, PREPROCESSING, files, ".int16")
    cached = _load_cached(path, len(files))
    if cached is None:
        with _writable(path) as target:
            _decode_all(files, target)
            cached = _load_cached(target, len(files))
    assert cached is not None
    samples, file_stats = cached
    recordings = segment_recordings(torch.from_numpy(samples), file_stats[:, 0].tolist(), [file.name for file in files])
    return recordings, int(file_stats[:, 1].sum())


@contextmanager
def _writable(path: Path) -> Iterator[Path]:
    """Yield `path`, or a temporary path if the cache is read-only; a mapped file survives its removal."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / path.name
        return
    yield path


def _decode_all(files: Sequence[DataFile], path: Path) -> None:
    """Write all samples to `path`, and the length and clipping of each file to a .npy file beside it."""
    file_stats = np.zeros((len(files), 2), np.int64)
    try:
        with atomic_path(path) as partial, partial.open("wb") as out:
            for row, file in enumerate(track(files, len(files), "reading audio files")):
                loudness = measure_loudness(file)
                file_stats[row, 1] = loudness.clipped
                for block in read_blocks(file, loudness.gain):
                    out.write(block.tobytes())
                    file_stats[row, 0] += len(block)
                if not file_stats[row, 0]:
                    raise BadFileError(f"{file.path} is shorter than one sample at 16 kHz: remove it")
        with atomic_path(path.with_suffix(".npy")) as partial, partial.open("wb") as out:
            np.save(out, file_stats)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}): make room or set ANYTIME_CACHE") from error


def _load_cached(path: Path, count: int) -> tuple[np.memmap, Int64[np.ndarray, "n 2"]] | None:
    """Map the cached array copy-on-write, because torch requires writable memory."""
    try:
        with path.with_suffix(".npy").open("rb") as stream:
            file_stats = np.lib.format.read_array(stream, allow_pickle=False)  # not np.load, which opens other formats too
        samples = np.memmap(path, np.int16, "c")
    except Exception:  # a damaged array raises a dozen types, and is decoded again
        return None
    is_valid = file_stats.dtype == np.int64 and file_stats.shape == (count, 2) and file_stats[:, 0].sum() == len(samples)
    return (samples, file_stats) if is_valid else None


def wav_bytes(x: Float[Tensor, "channel time"]) -> bytes:
    """Return a WAV file, 16 bits at 16 kHz; values outside [-1, 1] are clamped."""
    samples = _wav_samples(x)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:  # the standard library's: soundfile may be missing
        file.setparams((len(samples), 2, SAMPLE_RATE, samples.shape[1], "NONE", "not compressed"))
        file.writeframes(np.ascontiguousarray(samples.T).tobytes())
    return buffer.getvalue()


def write_wav(path: Path, x: Float[Tensor, "channel time"]) -> None:
    """Write a WAV file."""
    write_atomic(path, wav_bytes(x))


def write_wav_stream(path: Path, parts: Iterable[Float[Tensor, "1 time"]]) -> None:
    """Write a mono WAV file part by part, without holding all of it in memory."""
    try:
        with atomic_path(path) as partial, wave.open(str(partial), "wb") as file:
            file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", "not compressed"))
            for part in parts:
                file.writeframes(_wav_samples(part).tobytes())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}): make room or choose another place") from None


def _wav_samples(x: Float[Tensor, "channel time"]) -> Int16[np.ndarray, "channel time"]:
    return (x.detach().cpu().float().clamp(-1, 1) * INT16_MAX).round().numpy().astype("<i2")
