"""Verified downloads into the cache."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from anytime.core.errors import UserError
from anytime.core.progress import DownloadBar
from anytime.data import digits
from anytime.data.cache import cache_dir, digest, mark_verified, quarantine, verify
from anytime.data.registry import RemoteFile, find, no_download_reason

__all__ = ["cache_dir", "download", "get"]


def get(name: str, cache: Path | None = None, progress: bool = True) -> Path:
    """Download what the cache lacks of a set and return its folder; what is there is checked and left alone."""
    entry = find(name)
    if entry.embedded:
        return digits.FOLDER
    if not entry.files:
        raise UserError(f"{name} {no_download_reason(entry)}: pass the folder with --data DIR")
    folder = (cache or cache_dir()) / name
    for file in entry.files:
        if (folder / file.name).is_file():
            verify(folder / file.name, file.hash, name)
        else:
            download(file, folder, name, progress)
    return folder


def download(file: RemoteFile, folder: Path, name: str, progress: bool = True, advice: str | None = None) -> Path:
    """Fetch one file of `name` under a temporary name; it gets its own only after its checksum was found right.

    `advice` ends the sentence of a download that failed: by default how to get a data set another way.
    """
    target, partial = folder / file.name, folder / f".{file.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(file, partial, progress, advice or f"try again, or pass a copy of {name} with --data DIR")
        got = digest(partial, file.hash.partition(":")[0])
        if got != file.hash:
            raise quarantine(partial, target, file.hash, got, name, advice)
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
    # Unencoded: otherwise requests unpacks a .gz that a server labels as such, and the checksum no longer fits.
    fetch = pooch.HTTPDownloader(progressbar=bar or False, chunk_size=1 << 16, headers={"Accept-Encoding": "identity"})
    try:
        fetch(file.url, str(partial), None)
    except requests.RequestException as error:
        raise UserError(f"{file.url} cannot be downloaded ({_reason(error)}): {advice}") from error
    finally:
        if bar is not None:
            bar.close()


def _reason(error: Exception) -> str:
    """A few words of what requests nests three exceptions deep."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"status {error.response.status_code}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    return "no connection" if isinstance(error, requests.ConnectionError) else type(error).__name__
