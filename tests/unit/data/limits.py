"""Limits that every reader of a hostile file keeps: time, memory, and nothing but `UserError`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from anytime.core.errors import UserError

SECONDS = 1.0  # of the processor for one input, since the machine may be busy; one that waits for ever meets the test's timeout
MEMORY = 1 << 30  # bytes above those in use before
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _kilobytes(key: str) -> int:
    """A figure of this process; 0 where there is no Linux to give it."""
    if not _STATUS.exists():
        return 0
    return int(next(line for line in _STATUS.read_text().splitlines() if line.startswith(key)).split()[1])


@dataclass
class Limits:
    """Counts inputs, and keeps the worst time and memory of them."""

    inputs: int = 0
    accepted: int = 0
    slowest: float = 0.0
    memory: int = 0
    _base: int = field(default_factory=lambda: _kilobytes("VmRSS"))

    def __post_init__(self) -> None:
        if _CLEAR.exists():
            _CLEAR.write_text("5")  # the peak counts from here

    def run(self, read: Callable[[], object]) -> str | None:
        """Read one hostile input: return the sentence of its refusal, or None if it was accepted."""
        seconds, refusal = self._timed(read)
        if seconds > SECONDS:  # again: the first use of a library includes its import
            seconds, refusal = min((seconds, refusal), self._timed(read))
        self.inputs += 1
        self.accepted += refusal is None
        self.slowest = max(self.slowest, seconds)
        assert seconds < SECONDS, f"{seconds:.2f} s for one input"
        if refusal is not None:
            assert refusal.isprintable() and len(refusal) < 2000, ascii(refusal)
        return refusal

    @staticmethod
    def _timed(read: Callable[[], object]) -> tuple[float, str | None]:
        start, refusal = time.process_time(), None
        try:
            read()
        except UserError as error:
            refusal = str(error)
        return time.process_time() - start, refusal

    def check_memory(self) -> None:
        """Refuse a peak of memory above the limit, over all inputs so far."""
        self.memory = max(0, _kilobytes("VmHWM") - self._base) * 1024
        assert self.memory < MEMORY, f"{self.memory:,} bytes"
