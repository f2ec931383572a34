"""The files of a dataset, in a directory or in a zip file, read within limits.

Files may come from strangers. Only regular files are opened, an archive is never unpacked to disk, and no more than
`MAX_BYTES` of one compressed file is held in memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import zipfile
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from anytime.core.errors import UserError

MAX_BYTES = 1 << 28
"""The most bytes that one compressed file, archive member or list may have once it is read: 256 MiB."""
_MAX_PRINTED = 1000  # letters of a path in a message
Stream = BufferedReader | BytesIO


@runtime_checkable
class Readable(Protocol):
    """Anything with a `read` method."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes."""
        ...


class TooLargeError(ValueError):
    """A compressed file that unpacks to more than its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it unpacks to more than {limit >> 20:,} MiB")


class LimitedReader:
    """A stream that raises `TooLargeError` instead of returning more than `limit` bytes in all."""

    def __init__(self, stream: Readable, limit: int = MAX_BYTES) -> None:
        self._stream, self._limit, self._left = stream, limit, limit

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, by default all that are left."""
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        content = self._stream.read(wanted)
        self._left -= len(content)
        if self._left < 0:
            raise TooLargeError(self._limit)
        return content


class Archive:
    """A zip file that several threads may read."""

    def __init__(self, file: Path | BytesIO) -> None:
        self._zip, self._lock = zipfile.ZipFile(file), threading.Lock()

    def read(self, name: str, count: int | None = None) -> bytes:
        """Return the first `count` bytes of a member, by default all of them, but never more than `MAX_BYTES`."""
        with self._lock, self._zip.open(name) as member:  # ZipFile counts its open members without a lock
            return LimitedReader(member).read() if count is None else member.read(count)

    def stamps(self) -> dict[str, str]:
        """The size and checksum of every member: a copy of the zip file elsewhere has the same stamps."""
        members = (member for member in self._zip.infolist() if not member.filename.endswith("/"))  # folders
        return {member.filename: f"{member.file_size} {member.CRC:08x}" for member in members}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a dataset."""

    root: Path
    """the directory or zip file it was found in"""
    name: str
    """its path below `root`, with forward slashes"""
    stamp: str
    """a text that changes when the file does"""
    archive: Archive | None = None

    @property
    def path(self) -> str:
        """The full path, for messages."""
        # Not `root / name`: a member of an archive may be called /etc/passwd, which is not the file that is read.
        return printable(self.name if self.root == Path() else f"{self.root}/{self.name}".replace("//", "/"))

    def open(self) -> Stream:
        """Open the file for reading."""
        with self._errors_by_name():
            return open_regular(self.root / self.name) if self.archive is None else BytesIO(self.archive.read(self.name))

    def head(self, count: int) -> bytes:
        """Return the first `count` bytes without decompressing the rest."""
        with self._errors_by_name():
            if self.archive is not None:
                return self.archive.read(self.name, count)
            with open_regular(self.root / self.name) as stream:
                return stream.read(count)

    @contextmanager
    def _errors_by_name(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # on broken bytes zipfile raises a dozen types: struct.error, LZMAError, UnicodeDecodeError
            raise UserError(f"{self.path} cannot be read ({reason(error)}): check its path, or remove or replace it") from error


def printable(text: str) -> str:
    """Return `text` with line breaks, terminal escape sequences and undecodable bytes written as escapes.

    The middle of a very long text is left out.

    >>> printable("a\\x1b[31m.png")
    'a\\\\x1b[31m.png'
    """
    short = text if len(text) <= _MAX_PRINTED else f"{text[: _MAX_PRINTED // 2]}…{text[-_MAX_PRINTED // 2 :]}"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)


def reason(error: BaseException) -> str:
    """Return what is wrong in a few words that may stand inside a sentence."""
    text = printable(str(getattr(error, "strerror", None) or error).splitlines()[0]) if str(error) else type(error).__name__
    return text[:200].rstrip(".")


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; raise an `OSError` for a directory, a device, or a pipe, which would wait for a writer."""
    # Without blocking, and checked after opening: no other file can be put in its place between check and use.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError("it is not a regular file")


def read_limited(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    try:
        with open_regular(path) as stream:
            return LimitedReader(stream, limit).read()
    except TooLargeError:
        raise UserError(f"{printable(str(path))} has more than {limit:,} bytes: replace it with the published one") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{printable(str(path))} cannot be read ({reason(error)}): replace it or correct `data`") from error


def local_file(path: Path) -> DataFile:
    """Return the file at `path`, which need not be part of a dataset."""
    return DataFile(path.parent, path.name, "")


def find_files(root: Path, suffixes: Set[str]) -> list[DataFile]:
    """Return every file under a directory or in a zip file with one of these suffixes, sorted by name, without hidden files."""
    if root.is_dir():
        return [DataFile(root, name, stamp) for name, stamp in _stamps_under(root, suffixes).items()]
    try:
        with open_regular(root):
            archive = Archive(root)
    except Exception as error:  # as above: broken archives raise a dozen types
        raise UserError(f"{printable(str(root))} is neither a folder nor a whole zip file: point `data` at one") from error
    stamps = archive.stamps()
    return [DataFile(root, name, stamps[name], archive) for name in sorted(stamps) if _is_wanted(name, suffixes)]


def _stamps_under(root: Path, suffixes: Set[str]) -> dict[str, str]:
    paths = (Path(base) / name for base, _, names in os.walk(root) for name in names)
    found = {path.relative_to(root).as_posix(): path for path in paths}
    stats = {name: found[name].stat() for name in sorted(found) if _is_wanted(name, suffixes) and found[name].is_file()}
    return {name: f"{root.resolve()} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats.items()}


def _is_wanted(name: str, suffixes: Set[str]) -> bool:
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
    return not hidden and PurePosixPath(name).suffix.lower() in suffixes


def decoded_path(cache: Path, preprocessing: str, files: Sequence[DataFile], suffix: str) -> Path:
    """Return where the decoded array of these files is cached: changed files or another preprocessing give another path."""
    lines = "\n".join((preprocessing, *(f"{file.name} {file.stamp}" for file in files)))
    # backslashreplace: the names of files need not be UTF-8.
    return cache / "decoded" / f"{hashlib.sha256(lines.encode(errors='backslashreplace')).hexdigest()[:32]}{suffix}"
