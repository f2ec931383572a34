"""The priority of a thread that has a deadline."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NICENESS = -5
"""Enough for the scheduler to move ordinary programs to other cores."""


@contextmanager
def raised_priority() -> Iterator[bool]:
    """Run the calling thread before ordinary programs, if the system allows it; yield whether it does.

    Linux allows it to root, and to users with a limit for `nice` (`ulimit -e`). Elsewhere nothing changes.
    """
    thread = threading.get_native_id()
    try:
        before = os.getpriority(os.PRIO_PROCESS, thread) if sys.platform == "linux" else 0
        allowed = sys.platform == "linux" and before > NICENESS
        if allowed:
            os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
    except OSError:
        allowed = False
    try:
        yield allowed
    finally:
        if allowed:
            os.setpriority(os.PRIO_PROCESS, thread, before)
