"""Files of strangers, read within limits: regular files only, and never more bytes than a limit."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Protocol, runtime_checkable

from anytime.core.errors import UserError, reason

MAX_BYTES = 1 << 28
"""The most bytes that one compressed file, archive member or list may have once it is read: 256 MiB."""


@runtime_checkable
class Readable(Protocol):
    """Anything with a `read` method."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes."""
        ...


class TooLargeError(ValueError):
    """A file with more bytes than its limit, as it is or unpacked."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it has more than {limit >> 20:,} MiB")


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


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; raise an `OSError` for a directory, a device, or a pipe, which would wait for a writer."""
    # Without blocking, and checked after opening: no other file can be put in its place between check and use.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError("it is not a regular file")


def read_limited(path: Path, limit: int = MAX_BYTES, advice: str = "replace it or correct `data`") -> bytes:
    """Return the content of a regular file of at most `limit` bytes; `advice` ends the sentence of an error."""
    try:
        with open_regular(path) as stream:
            return LimitedReader(stream, limit).read()
    except TooLargeError:
        raise UserError(f"{path} has more than {limit:,} bytes: {advice}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}): {advice}") from error
