"""Processes and their children, for tests that kill them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def children(process: int) -> list[int]:
    """The process numbers of all children, whichever thread started them."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def kill_tree(process: int) -> None:
    """Kill a process and everything below it. Ranks of torchrun are sessions of their own, which `killpg` does not reach."""
    below = children(process)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    for child in below:
        kill_tree(child)
