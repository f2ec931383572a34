"""Many sound files, in folders or zip files, to one array that is kept for the next start."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from anytime.core.errors import UserError
from anytime.core.progress import track
from anytime.core.storage import atomic_path
from anytime.data.audio_io import PREPROCESSING, blocks, measure_loudness
from anytime.data.image_files import ImageFiles, find_files
from anytime.data.image_io import Stream
from anytime.data.recordings import Recordings, segment_recordings

SUFFIXES = {".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff", ".au", ".caf", ".w64"}
_MAGIC_NUMBERS = (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b".snd", b"caff", b"riff")


@dataclass(frozen=True, slots=True)
class AudioFile:
    """One file and where it lies."""

    files: ImageFiles
    name: str

    @property
    def filename(self) -> str:
        return self.files.filename(self.name)

    def open(self) -> Stream:
        return self.files.open(self.name)


@dataclass(frozen=True, slots=True)
class AudioFiles:
    """What was read of many files."""

    recordings: Recordings
    clipped: int
    """files with samples at full scale; they are kept"""


def find_audio(root: Path) -> list[AudioFile]:
    """Every sound of a folder, at any depth, or of a zip file, by sorted name; hidden files are left out."""
    files = find_files(root, SUFFIXES)
    return [AudioFile(files, name) for name in files.names]


def is_audio(head: bytes) -> bool:
    """Whether a file that begins with these 12 bytes is a sound, whatever its name says."""
    is_container = (head[:4], head[8:12]) in ((b"RIFF", b"WAVE"), (b"RF64", b"WAVE"), (b"FORM", b"AIFF"), (b"FORM", b"AIFC"))
    return is_container or head.startswith(_MAGIC_NUMBERS)


def read_audio_files(audio_files: list[AudioFile], cache: Path) -> AudioFiles:
    """The sounds at 16 kHz, from the kept array where there is one."""
    lines = "\n".join(
        (PREPROCESSING, *(f"{audio_file.name} {audio_file.files.stamps[audio_file.name]}" for audio_file in audio_files))
    )
    path = cache / "decoded" / f"{hashlib.sha256(lines.encode()).hexdigest()[:32]}.int16"
    cached = _load_cached(path, len(audio_files))
    if cached is None:
        with _writable(path) as target:
            _decode(audio_files, target)
            cached = _load_cached(target, len(audio_files))
    assert cached is not None
    samples, file_stats = cached
    recordings = segment_recordings(
        torch.from_numpy(samples), file_stats[:, 0].tolist(), [audio_file.name for audio_file in audio_files]
    )
    return AudioFiles(recordings, int(file_stats[:, 1].sum()))


@contextmanager
def _writable(path: Path) -> Iterator[Path]:
    """The path, or one in a temporary folder where the cache cannot be written: the array then lives as long as its mapping."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / path.name
        return
    yield path


def _decode(audio_files: list[AudioFile], path: Path) -> None:
    """Samples into `path`, and (length, clipped) of each file beside it; straight to the disk, block by block."""
    file_stats = np.zeros((len(audio_files), 2), np.int64)
    try:
        with atomic_path(path) as partial, partial.open("wb") as out:
            for row, audio_file in enumerate(track(audio_files, len(audio_files), "reading sounds")):
                with audio_file.open() as stream:
                    loudness = measure_loudness(stream, audio_file.filename)
                    file_stats[row, 1] = loudness.clipped
                    for block in blocks(stream, audio_file.filename, loudness.gain):
                        out.write(block.tobytes())
                        file_stats[row, 0] += len(block)
                if not file_stats[row, 0]:
                    raise UserError(f"{audio_file.filename} is shorter than one sample at 16 kHz: remove it")
        with atomic_path(path.with_suffix(".npy")) as partial, partial.open("wb") as out:
            np.save(out, file_stats)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}): make room or set ANYTIME_CACHE") from error


def _load_cached(path: Path, count: int) -> tuple[np.memmap, Int64[np.ndarray, "n 2"]] | None:
    """The kept array, mapped rather than read: copy-on-write, as torch wants memory that may be written."""
    try:
        file_stats = np.load(path.with_suffix(".npy"), allow_pickle=False)
        samples = np.memmap(path, np.int16, "c")
    except (OSError, ValueError, EOFError):
        return None
    is_valid = file_stats.dtype == np.int64 and file_stats.shape == (count, 2) and file_stats[:, 0].sum() == len(samples)
    return (samples, file_stats) if is_valid else None
