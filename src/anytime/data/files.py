"""The files of a dataset, in a directory or in a zip file, read within limits.

Files may come from strangers. Only regular files are opened, an archive is never unpacked to disk, and no more than
`MAX_BYTES` of one compressed file is held in memory.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from anytime.core.errors import UserError, printable, reason
from anytime.core.files import MAX_BYTES, LimitedReader, TooLargeError, open_regular

Stream = BufferedReader | BytesIO


@runtime_checkable
class ReadableFile(Protocol):
    """A file of a dataset, wherever it is."""

    @property
    def path(self) -> str:
        """The full path, for messages."""
        ...

    def open(self) -> Stream:
        """Open the file for reading."""
        ...


class BadFileError(UserError):
    """A file that cannot be read; the others of its dataset may be whole."""


class Archive:
    """A zip file that several threads may read."""

    def __init__(self, file: Path | BytesIO) -> None:
        self._zip, self._lock = zipfile.ZipFile(file), threading.Lock()

    def read(self, name: str, count: int | None = None) -> bytes:
        """Return the first `count` bytes of a member, by default all of them, but never more than `MAX_BYTES`."""
        if count is None and self._zip.getinfo(name).file_size > MAX_BYTES:  # zipfile reads no more than that, if it is false
            raise TooLargeError(MAX_BYTES)
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
            raise BadFileError(
                f"{self.path} cannot be read ({reason(error)}): check its path, or remove or replace it"
            ) from error


def local_file(path: Path) -> DataFile:
    """Return the file at `path`, which need not be part of a dataset."""
    return DataFile(path.parent, path.name, "")


def stamped_file(path: Path) -> DataFile:
    """Return the file at `path`, with a stamp that changes when it does."""
    return DataFile(path.parent, path.name, _stamp(path.parent, path.stat()))


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
    return [DataFile(root, name, stamps[name], archive) for name in sorted(stamps) if is_wanted(name, suffixes)]


def _stamps_under(root: Path, suffixes: Set[str]) -> dict[str, str]:
    paths = (Path(base) / name for base, _, names in os.walk(root) for name in names)
    found = {path.relative_to(root).as_posix(): path for path in paths}
    stats = {name: found[name].stat() for name in sorted(found) if is_wanted(name, suffixes) and found[name].is_file()}
    return {name: _stamp(root, stat) for name, stat in stats.items()}


def _stamp(root: Path, stat: os.stat_result) -> str:
    return f"{root.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def is_wanted(name: str, suffixes: Set[str]) -> bool:
    """Return whether a file has one of these suffixes and is not hidden."""
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
    return not hidden and PurePosixPath(name).suffix.lower() in suffixes


def decoded_path(cache: Path, preprocessing: str, files: Sequence[DataFile], suffix: str) -> Path:
    """Return where the decoded array of these files is cached: changed files or another preprocessing give another path."""
    lines = "\n".join((preprocessing, *(f"{file.name} {file.stamp}" for file in files)))
    # backslashreplace: the names of files need not be UTF-8.
    return cache / "decoded" / f"{hashlib.sha256(lines.encode(errors='backslashreplace')).hexdigest()[:32]}{suffix}"
