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
from anytime.core.storage import replacing
from anytime.data.audio_io import RULE, blocks, measure
from anytime.data.image_files import Album, find_files
from anytime.data.image_io import Stream
from anytime.data.recordings import Recordings, stretches

SUFFIXES = {".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff", ".au", ".caf", ".w64"}
_HEADS = (b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b".snd", b"caff", b"riff")


@dataclass(frozen=True, slots=True)
class Sound:
    """One file and where it lies."""

    album: Album
    name: str

    @property
    def label(self) -> str:
        return self.album.label(self.name)

    def open(self) -> Stream:
        return self.album.open(self.name)


@dataclass(frozen=True, slots=True)
class Library:
    """What was read of many files."""

    recordings: Recordings
    clipped: int
    """files with samples at full scale; they are kept"""


def find_sounds(where: Path) -> list[Sound]:
    """Every sound of a folder, at any depth, or of a zip file, by sorted name; hidden files are left out."""
    album = find_files(where, SUFFIXES)
    return [Sound(album, name) for name in album.names]


def is_sound(head: bytes) -> bool:
    """Whether a file that begins with these 12 bytes is a sound, whatever its name says."""
    boxed = (head[:4], head[8:12]) in ((b"RIFF", b"WAVE"), (b"RF64", b"WAVE"), (b"FORM", b"AIFF"), (b"FORM", b"AIFC"))
    return boxed or head.startswith(_HEADS)


def read_sounds(sounds: list[Sound], cache: Path) -> Library:
    """The sounds at 16 kHz, from the kept array where there is one."""
    lines = "\n".join((RULE, *(f"{sound.name} {sound.album.stamps[sound.name]}" for sound in sounds)))
    path = cache / "decoded" / f"{hashlib.sha256(lines.encode()).hexdigest()[:32]}.int16"
    kept = _kept(path, len(sounds))
    if kept is None:
        with _writable(path) as target:
            _decode(sounds, target)
            kept = _kept(target, len(sounds))
    assert kept is not None
    samples, facts = kept
    recordings = stretches(torch.from_numpy(samples), facts[:, 0].tolist(), [sound.name for sound in sounds])
    return Library(recordings, int(facts[:, 1].sum()))


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


def _decode(sounds: list[Sound], path: Path) -> None:
    """Samples into `path`, and (length, clipped) of each file beside it; straight to the disk, block by block."""
    facts = np.zeros((len(sounds), 2), np.int64)
    try:
        with replacing(path) as partial, partial.open("wb") as out:
            for row, sound in enumerate(track(sounds, len(sounds), "reading sounds")):
                with sound.open() as stream:
                    level = measure(stream, sound.label)
                    facts[row, 1] = level.clipped
                    for block in blocks(stream, sound.label, level.gain):
                        out.write(block.tobytes())
                        facts[row, 0] += len(block)
                if not facts[row, 0]:
                    raise UserError(f"{sound.label} is shorter than one sample at 16 kHz: remove it")
        with replacing(path.with_suffix(".npy")) as partial, partial.open("wb") as out:
            np.save(out, facts)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}): make room or set ANYTIME_CACHE") from error


def _kept(path: Path, count: int) -> tuple[np.memmap, Int64[np.ndarray, "n 2"]] | None:
    """The kept array, mapped rather than read: copy-on-write, as torch wants memory that may be written."""
    try:
        facts = np.load(path.with_suffix(".npy"), allow_pickle=False)
        samples = np.memmap(path, np.int16, "c")
    except (OSError, ValueError, EOFError):
        return None
    whole = facts.dtype == np.int64 and facts.shape == (count, 2) and facts[:, 0].sum() == len(samples)
    return (samples, facts) if whole else None
