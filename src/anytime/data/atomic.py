"""Files that are either whole or absent."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`: renamed to it on success and removed otherwise, so that nobody reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A random part: several processes of one training may write the same file at the same time.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
