"""Verified downloads and the cache directory: no file is used before its SHA-256 has been verified.

What is promised: a file of the cache that is not the published one, whether it came damaged from the network or changed
on the disk, is not used. It is hashed at every start; only a file above `ALWAYS_HASHED` bytes is trusted without that,
while its size, inode and times are those it was verified with. Whoever may write into the cache directory can forge
these, and is not kept out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from anytime.core.errors import UserError
from anytime.core.progress import DownloadBar
from anytime.core.storage import atomic_path

VERIFIED = "verified.json"
ALWAYS_HASHED = 1 << 28
"""Bytes up to which a cached file is hashed at every start: at most half a second. CelebA, of 1.4 GB, takes seconds."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A published file, its checksum and its size."""

    name: str
    url: str
    hash: str  # sha256:...
    bytes: int

    def __post_init__(self) -> None:
        if not re.fullmatch("sha256:[0-9a-f]{64}", self.hash):
            raise ValueError(f"the checksum of {self.name} must be a SHA-256, not {self.hash!r}: others can be forged")


def cache_dir() -> Path:
    """Return `$ANYTIME_CACHE`, or the platform's cache directory."""
    if chosen := os.environ.get("ANYTIME_CACHE"):
        return Path(chosen).expanduser()
    try:
        import pooch
    except ImportError:  # a bare machine: where pooch would put it on Linux
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "anytime"
    return Path(pooch.os_cache("anytime")).expanduser()


def download(file: RemoteFile, folder: Path, name: str, progress: bool = True, advice: str | None = None) -> Path:
    """Download one file of the dataset `name` to a temporary path, and rename it once its checksum is verified.

    `advice` ends the error message of a failed download; by default it says how to get a dataset another way.
    """
    target, partial = folder / file.name, folder / f".{file.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(file, partial, progress, advice or f"try again, or pass a copy with `anytime train {name} --data DIR`")
        got = digest(partial)
        if got != file.hash:
            raise _quarantine(partial, target, file.hash, got, name, advice)
        partial.replace(target)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{target} cannot be written ({reason}): make room, or set ANYTIME_CACHE to another folder") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    mark_verified(target, file.hash)
    return target


def _fetch(file: RemoteFile, partial: Path, progress: bool, advice: str) -> None:
    try:
        import pooch
        import requests
    except ImportError:  # a bare machine
        raise UserError(f"{file.url} cannot be downloaded (pooch is not installed): {advice}") from None

    bar = DownloadBar(file.name, file.bytes) if progress else None
    # Identity: otherwise requests decompresses a .gz that a server labels as gzip, and the checksum no longer matches.
    fetch = pooch.HTTPDownloader(progressbar=bar or False, chunk_size=1 << 16, headers={"Accept-Encoding": "identity"})
    try:
        with partial.open("wb") as stream:
            fetch(file.url, _LimitedWriter(stream, file.bytes), None)
    except _TooLongError:
        raise UserError(f"{file.url} cannot be downloaded (it sends more than {file.bytes:,} bytes): {advice}") from None
    except requests.RequestException as error:
        raise UserError(f"{file.url} cannot be downloaded ({_reason(error)}): {advice}") from error
    finally:
        if bar is not None:
            bar.close()


class _TooLongError(Exception):
    """A server that sends more than the published file."""


class _LimitedWriter:
    """A file that takes no more than `limit` bytes: a server could send for ever."""

    def __init__(self, stream: BufferedWriter, limit: int) -> None:
        self._stream, self._left = stream, limit

    def write(self, content: bytes) -> int:
        """Write all of `content`."""
        self._left -= len(content)
        if self._left < 0:
            raise _TooLongError
        return self._stream.write(content)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is closed."""


def _reason(error: Exception) -> str:
    """Say in a few words what requests nests three exceptions deep."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"status {error.response.status_code}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    return "no connection" if isinstance(error, requests.ConnectionError) else type(error).__name__


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file as `algorithm:hex`."""
    with path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def verify(path: Path, expected: str, name: str, advice: str | None = None) -> None:
    """Refuse a cached file of `name` whose checksum is wrong, and move it aside; `advice` says how to replace it."""
    is_large = path.stat().st_size > ALWAYS_HASHED
    if is_large and _read_verified(path.parent).get(path.name) == _stamp(path, expected):
        return
    got = digest(path)
    if got != expected:
        raise _quarantine(path, path, expected, got, name, advice)
    if is_large:
        mark_verified(path, expected)


def mark_verified(path: Path, expected: str) -> None:
    """Record that the checksum of `path` is `expected`, so that the next start need not hash it."""
    stamps = _read_verified(path.parent) | {path.name: _stamp(path, expected)}
    with suppress(OSError), atomic_path(path.parent / VERIFIED) as partial:
        partial.write_text(json.dumps(stamps, indent=1))


def _quarantine(found: Path, target: Path, expected: str, got: str, name: str, advice: str | None) -> UserError:
    """Move a file with a wrong checksum to `TARGET.rejected` and return the error that says so."""
    aside = target.with_name(target.name + ".rejected")
    try:
        found.replace(aside)
    except OSError:  # the cache is read-only: the file stays, and is still not used
        aside = found
    return UserError(
        f"{target.name} of {name} is damaged or altered (expected {expected}, got {got}): it was kept as {aside} and not used; "
        + (advice or f"run `anytime data get {name}` again or pass a copy with `data`")
    )


def _stamp(path: Path, expected: str) -> list[str | int]:
    status = path.stat()
    # The time of change too: unlike the time of modification, no program can set it back.
    return [expected, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _read_verified(folder: Path) -> dict[str, list[str | int]]:
    try:
        stamps = json.loads((folder / VERIFIED).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return stamps if isinstance(stamps, dict) else {}
