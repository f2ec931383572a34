"""The files of a dataset, in a directory or in a zip file."""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
import zlib
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath

from anytime.core.errors import UserError

Stream = BufferedReader | BytesIO


class Archive:
    """A zip file that several threads may read."""

    def __init__(self, file: Path | BytesIO) -> None:
        self._zip, self._lock = zipfile.ZipFile(file), threading.Lock()

    def read(self, name: str, count: int = -1) -> bytes:
        """Return the first `count` bytes of a member, by default all of them."""
        with self._lock, self._zip.open(name) as member:  # ZipFile counts its open members without a lock
            return member.read(count)

    def stamps(self) -> dict[str, str]:
        """The size and checksum of every member: a copy of the zip file elsewhere has the same stamps."""
        return {member.filename: f"{member.file_size} {member.CRC:08x}" for member in self._zip.infolist()}


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
        return str(self.root / self.name)

    def open(self) -> Stream:
        """Open the file for reading."""
        with self._errors_by_name():
            return (self.root / self.name).open("rb") if self.archive is None else BytesIO(self.archive.read(self.name))

    def head(self, count: int) -> bytes:
        """Return the first `count` bytes without decompressing the rest."""
        with self._errors_by_name():
            if self.archive is not None:
                return self.archive.read(self.name, count)
            with (self.root / self.name).open("rb") as stream:
                return stream.read(count)

    @contextmanager
    def _errors_by_name(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.path} cannot be read ({reason}): check its path, or remove or replace it") from error


def local_file(path: Path) -> DataFile:
    """Return the file at `path`, which need not be part of a dataset."""
    return DataFile(path.parent, path.name, "")


def find_files(root: Path, suffixes: Set[str]) -> list[DataFile]:
    """Return every file under a directory or in a zip file with one of these suffixes, sorted by name, without hidden files."""
    if root.is_dir():
        return [DataFile(root, name, stamp) for name, stamp in _stamps_under(root, suffixes).items()]
    try:
        archive = Archive(root)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{root} is neither a folder nor a whole zip file: point `data` at one") from error
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
    return cache / "decoded" / f"{hashlib.sha256(lines.encode()).hexdigest()[:32]}{suffix}"
