"""A lock between the processes of one machine, for files that several of them write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_write_lock(path: Path) -> Iterator[None]:
    """Wait until no other process on this machine writes files beside `path`, and keep others waiting meanwhile."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.parent / ".lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
