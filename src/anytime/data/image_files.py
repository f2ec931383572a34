"""Many picture files, in a folder or a zip file, to one array that is kept for the next start."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile
import zlib
from collections.abc import Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.progress import track
from anytime.core.storage import atomic_path
from anytime.data.image_io import PREPROCESSING, Stream, decode, header

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
_BLOCK = 128  # pictures that a thread takes at a time


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Named files, each with a stamp that changes when the file does."""

    root: Path
    stamps: dict[str, str]
    archive: zipfile.ZipFile | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def names(self) -> list[str]:
        return list(self.stamps)

    def select(self, names: Iterable[str]) -> ImageFiles:
        """These files, in this order."""
        return replace(self, stamps={name: self.stamps[name] for name in names})

    def filename(self, name: str) -> str:
        return str(self.root / name)

    def head(self, name: str, count: int) -> bytes:
        """The file's first bytes, without unpacking all of it."""
        if self.archive is None:
            with self.open(name) as stream:
                return stream.read(count)
        try:
            with self._lock, self.archive.open(name) as member:
                return member.read(count)
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"{self.filename(name)} cannot be read ({error}): remove or replace it") from error

    def open(self, name: str) -> Stream:
        try:
            if self.archive is None:
                return (self.root / name).open("rb")
            with self._lock:  # ZipFile counts its open members without one
                return io.BytesIO(self.archive.read(name))
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"{self.filename(name)} cannot be read ({error}): remove or replace it") from error


def find_images(root: Path) -> ImageFiles:
    """Every picture of a folder, at any depth, or of a zip file, by sorted name; hidden files are left out."""
    return find_files(root, SUFFIXES)


def find_files(root: Path, suffixes: Set[str]) -> ImageFiles:
    """Every file with one of these endings."""
    if root.is_dir():
        return ImageFiles(root, _files_under(root, suffixes))
    try:
        archive = zipfile.ZipFile(root)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{root} is neither a folder nor a whole zip file: point --data at one") from error
    # Stamped by content: a copy of the file elsewhere finds the same kept array.
    stamps = {m.filename: f"{m.file_size} {m.CRC:08x}" for m in archive.infolist() if _is_wanted(m.filename, suffixes)}
    return ImageFiles(root, dict(sorted(stamps.items())), archive)


def _files_under(root: Path, suffixes: Set[str]) -> dict[str, str]:
    paths = (Path(base) / name for base, _, names in os.walk(root) for name in names)
    found = {path.relative_to(root).as_posix(): path for path in paths}
    stats = {name: found[name].stat() for name in sorted(found) if _is_wanted(name, suffixes) and found[name].is_file()}
    return {name: f"{root.resolve()} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats.items()}


def _is_wanted(name: str, suffixes: Set[str]) -> bool:
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
    return not hidden and PurePosixPath(name).suffix.lower() in suffixes


def decode_images(
    files: ImageFiles, size: int, cache: Path, channels: int | None = None
) -> UInt8[Tensor, "n channel size size"]:
    """The pictures at `size`, from the kept array where there is one.

    Without `channels` the set is grey if every file is stored as grey, by its mode: looking at pixels would decode all twice.
    """
    lines = "\n".join((PREPROCESSING, f"{size} {channels}", *(f"{name} {stamp}" for name, stamp in files.stamps.items())))
    path = cache / "decoded" / f"{hashlib.sha256(lines.encode()).hexdigest()[:32]}.npy"
    cached = _load_cached(path, len(files.stamps), size)
    if cached is None:
        cached = _decode(files, size, scan_images(files, size) if channels is None else channels)
        with suppress(OSError), atomic_path(path) as partial, partial.open("wb") as stream:
            np.save(stream, cached)  # a cache that cannot be written costs time at the next start, nothing else
    return torch.from_numpy(cached)


def _load_cached(path: Path, count: int, size: int) -> UInt8[np.ndarray, "n channel size size"] | None:
    """The kept array, mapped rather than read: copy-on-write, as torch wants memory that may be written."""
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_valid = array.dtype == np.uint8 and array.ndim == 4 and (len(array), *array.shape[2:]) == (count, size, size)
    return array if is_valid else None


def scan_images(files: ImageFiles, size: int) -> int:
    """The number of channels (1 where all pictures are grey, else 3); refuses pictures smaller than `size`."""
    names, grey, small = files.names, True, list[str]()
    for name in track(names, len(names), "looking at pictures"):
        with files.open(name) as stream:
            is_grey, side = header(stream, files.filename(name))
        grey &= is_grey
        if side < size:
            small.append(name)
    if small:
        raise _too_small(files, small, size)
    return 1 if grey else 3


def _too_small(files: ImageFiles, small: list[str], size: int) -> UserError:
    others = f" and {len(small) - 1:,} more are" if len(small) > 1 else " is"
    return UserError(f"{files.filename(small[0])}{others} smaller than {size} x {size}: choose a smaller --size or remove them")


def _decode(files: ImageFiles, size: int, channels: int) -> UInt8[np.ndarray, "n channel size size"]:
    """All pictures into one array made beforehand; threads help, since Pillow decodes without the interpreter's lock."""
    names = files.names
    pixels = np.empty((len(names), channels, size, size), np.uint8)

    def fill(start: int) -> list[str]:
        small = []
        for row, name in enumerate(names[start : start + _BLOCK], start):
            with files.open(name) as stream:
                pixels[row], side = decode(stream, files.filename(name), size, channels)
            if side < size:
                small.append(name)
        return small

    starts = range(0, len(names), _BLOCK)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        small = [name for block in track(pool.map(fill, starts), len(starts), "decoding pictures") for name in block]
    if small:
        raise _too_small(files, small, size)
    return pixels
