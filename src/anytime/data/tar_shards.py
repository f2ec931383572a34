"""Tar shards of images, as webdataset writes them: the index of their members, and a member as a file.

A shard is an uncompressed tar file. Only its headers are read for the index, nothing is unpacked, and links are not followed.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

import numpy as np
from jaxtyping import Int64

from anytime.core.errors import UserError, printable, reason
from anytime.core.files import MAX_BYTES, TooLargeError, open_regular
from anytime.core.progress import track
from anytime.core.storage import atomic_path
from anytime.data import image_io
from anytime.data.files import DataFile, decoded_path, is_wanted

SUFFIX = ".tar"
MAX_HEADER_READ = 1 << 20
"""Bytes of one read of a tar file's headers: long names and extended headers are shorter."""
_HEADER = 512  # bytes before a member's content, of which the first hundred are its name
_BLOCK = 1000  # members whose images a thread looks at


@dataclass(frozen=True, slots=True)
class TarMember:
    """An image inside a tar file."""

    shard: Path
    offset: int
    size: int

    @property
    def path(self) -> str:
        """The shard and the name of the member, for messages."""
        try:
            with open_regular(self.shard) as stream:
                stream.seek(self.offset - _HEADER)
                name = stream.read(100).rstrip(b"\0").decode(errors="backslashreplace")
        except OSError:
            name = f"byte {self.offset:,}"
        return printable(f"{self.shard}/{name}")

    def open(self) -> io.BufferedReader:
        """Open the member for reading; only what is asked for is read from the shard."""
        try:
            return io.BufferedReader(_Window(open_regular(self.shard), self.offset, self.size))
        except OSError as error:
            raise UserError(f"{self.shard} cannot be read ({reason(error)}): restore it, then run the same command") from None


class _Window(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, stream: io.BufferedReader, offset: int, size: int) -> None:
        self._stream, self._offset, self._size, self._at = stream, offset, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._stream.seek(self._offset + self._at)
        content = self._stream.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Where every image of a set of shards is: 24 bytes of memory for each."""

    shards: tuple[Path, ...]
    table: Int64[np.ndarray, "n 3"]
    """shard, offset and size of each image"""
    is_grey: bool
    """whether every image is stored as grey"""

    def __len__(self) -> int:
        return len(self.table)

    def member(self, row: int) -> TarMember:
        """Return an image as a file."""
        shard, offset, size = self.table[row].tolist()
        return TarMember(self.shards[shard], offset, size)


def index_shards(files: Sequence[DataFile], size: int, cache: Path) -> ShardIndex:
    """Index the images of shards, from the cache if it is there; refuse images smaller than `size` and broken ones."""
    path = decoded_path(cache, f"tar index of images of {size}", files, ".npy")
    shards = tuple(file.root / file.name for file in files)
    table = _load_cached(path, len(shards))
    if table is None:
        members = np.concatenate([_scan(shard, number) for number, shard in enumerate(track(shards, len(shards), "indexing"))])
        table = np.column_stack([members, _grey(shards, members, size)])
        with suppress(OSError), atomic_path(path) as partial, partial.open("wb") as stream:
            np.save(stream, table)  # without a writable cache the next start indexes again, nothing else
    return ShardIndex(shards, table[:, :3], bool(table[:, 3].all()))


def _load_cached(path: Path, shards: int) -> Int64[np.ndarray, "n 4"] | None:
    try:
        table = np.lib.format.open_memmap(path, mode="r")
    except Exception:  # a damaged array raises a dozen types, and is made again
        return None
    is_valid = table.dtype == np.int64 and table.ndim == 2 and table.shape[1] == 4 and len(table) > 0
    return table if is_valid and (table >= 0).all() and table[:, 0].max() < shards else None


def _scan(shard: Path, number: int) -> Int64[np.ndarray, "n 3"]:
    """Return number, offset and size of every image in a tar file, in its order."""
    rows = []
    try:
        with open_regular(shard) as stream:
            end = os.fstat(stream.fileno()).st_size
            with tarfile.open(fileobj=cast("IO[bytes]", _Forward(stream)), mode="r:") as archive:
                for member in _members(archive):
                    if member.isreg() and not member.issparse() and is_wanted(member.name, image_io.SUFFIXES):
                        if member.size > MAX_BYTES:
                            raise TooLargeError(MAX_BYTES)
                        if member.offset_data + member.size > end:
                            raise ValueError(f"it ends inside {PurePosixPath(member.name).name}")
                        rows.append((number, member.offset_data, member.size))
    except Exception as error:  # broken archives raise a dozen types: TarError, ValueError, RecursionError, UnicodeError
        advice = "replace it, or unpack it with gunzip if it is compressed"
        raise UserError(f"{shard} is not a whole tar file ({reason(error)}): {advice}") from error
    return np.array(rows, np.int64).reshape(-1, 3)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members; tarfile itself would keep all of them in memory."""
    while (member := archive.next()) is not None:
        if member.size < 0:
            raise ValueError("it has a member of negative size")
        yield member
        archive.members = []  # type: ignore[attr-defined]


class _Forward:
    """A stream for tarfile that reads little at a time and hardly ever goes back: sizes in a header may lie."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER_READ:
            raise ValueError("it has a header of more than 1 MiB")
        return self._stream.read(size)

    def seek(self, offset: int) -> int:
        if offset < self._stream.tell() - 1:  # tarfile looks at the last byte before the next header
            raise ValueError("it has a member of negative size")
        return self._stream.seek(offset)

    def tell(self) -> int:
        return self._stream.tell()


def _grey(shards: Sequence[Path], members: Int64[np.ndarray, "n 3"], size: int) -> Int64[np.ndarray, " n"]:
    """Look at the header of every image; return 1 for each that is stored as grey."""

    def look(start: int) -> list[bool]:
        found = []
        for shard, offset, length in members[start : start + _BLOCK].tolist():
            member = TarMember(shards[shard], offset, length)
            grey, side = image_io.header(member)
            if side < size:
                raise UserError(f"{member.path} is smaller than {size} x {size}: choose a smaller `size` or remove it")
            found.append(grey)
        return found

    starts = range(0, len(members), _BLOCK)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        blocks = list(track(pool.map(look, starts), len(starts), "reading image headers"))
    return np.array([grey for block in blocks for grey in block], np.int64)
