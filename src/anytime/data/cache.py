"""The folder of downloaded files, none of which is used before its checksum was found right."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from anytime.core.errors import UserError
from anytime.core.storage import atomic_path

VERIFIED = "verified.json"


def cache_dir() -> Path:
    """`$ANYTIME_CACHE`, or the platform's cache folder."""
    if chosen := os.environ.get("ANYTIME_CACHE"):
        return Path(chosen).expanduser()
    try:
        import pooch
    except ImportError:  # a bare machine: where pooch would put it on Linux
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "anytime"
    return Path(pooch.os_cache("anytime")).expanduser()


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file, in the catalogue's form `algorithm:hex`."""
    with path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def verify(path: Path, expected: str, name: str, advice: str | None = None) -> None:
    """Refuse a cached file of `name` whose checksum is wrong, and move it aside; `advice` says how to get a whole one.

    A file found right is remembered by size and time, for hashing 1.4 GB at every start would cost seconds.
    """
    if _read_verified(path.parent).get(path.name) == _stamp(path, expected):
        return
    got = digest(path, expected.partition(":")[0])
    if got != expected:
        raise quarantine(path, path, expected, got, name, advice)
    mark_verified(path, expected)


def quarantine(found: Path, target: Path, expected: str, got: str, name: str, advice: str | None = None) -> UserError:
    """Move a file with a wrong checksum to `TARGET.rejected` and make the error that says so."""
    aside = target.with_name(target.name + ".rejected")
    try:
        found.replace(aside)
    except OSError:  # a cache that cannot be written: the file stays, and is still not used
        aside = found
    return UserError(
        f"{target.name} of {name} is damaged or altered (expected {expected}, got {got}): it was kept as {aside} and not used; "
        + (advice or f"run `anytime data get {name}` again or pass --data DIR")
    )


def mark_verified(path: Path, expected: str) -> None:
    """Note that `path` was found right, so that the next start need not hash it."""
    stamps = _read_verified(path.parent) | {path.name: _stamp(path, expected)}
    with suppress(OSError), atomic_path(path.parent / VERIFIED) as partial:
        partial.write_text(json.dumps(stamps, indent=1))


def _stamp(path: Path, expected: str) -> list[str | int]:
    status = path.stat()
    return [expected, status.st_size, status.st_mtime_ns]


def _read_verified(folder: Path) -> dict[str, list[str | int]]:
    try:
        stamps = json.loads((folder / VERIFIED).read_text())
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}
