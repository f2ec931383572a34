"""The lock of a run directory: one process trains in it, and others learn which one."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anytime.core import storage
from anytime.core.config import read_json
from anytime.core.errors import UserError

LOCK = ".lock"
"""Its lock is held during training. It is never written: a link or a file of that name keeps its content."""
OWNER = ".lock.json"
"""Process, machine and start time of the training that holds the lock."""


@contextmanager
def hold_lock(run_dir: Path) -> Iterator[None]:
    """Hold the lock of a run directory, which is made if it is missing; refuse one in which another process trains."""
    if not storage.is_utf8(run_dir):
        raise UserError(f"{run_dir.absolute()} is not a UTF-8 path, which a run needs; choose another `out`")
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = _open(run_dir / LOCK)
    except OSError as error:
        raise UserError(f"{run_dir} cannot be written ({error.strerror}); choose another `out`") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise UserError(f"{run_dir} cannot be locked ({error.strerror}); choose another `out`") from None
        owner = describe_owner(run_dir)
        raise UserError(f"another process is training in {run_dir}{owner}; wait for it or choose another `out`") from None
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def name_owner(run_dir: Path) -> Iterator[None]:
    """Record this process as the one that trains; the caller holds the lock."""
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    storage.write_json(run_dir / OWNER, {"process": os.getpid(), "host": platform.node(), "started": started})
    try:
        yield
    finally:
        (run_dir / OWNER).unlink(missing_ok=True)


def describe_owner(run_dir: Path) -> str:
    """Return the process, machine and start time of the training in a run directory, for an error; empty if not known."""
    try:
        owner = read_json(run_dir / OWNER)
        return f" (process {int(owner['process'])} on {owner['host']}, started {owner['started']})"
    except (UserError, ValueError, KeyError, TypeError, OverflowError):
        return ""


def _open(path: Path) -> int:
    """Open the lock file, or make it, without following a link and without changing it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path} is a symbolic link, and the lock of a run must be a file; remove it") from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError(f"{path} is not a file, which the lock of a run must be; remove it")
    return file
