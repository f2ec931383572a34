"""Work in parts: stop after some minutes at a point from which the same call resumes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


class Paused(Exception):  # noqa: N818 (nothing went wrong)
    """The time is over. All work is saved, and the same call resumes it."""


class PartMeasured(Paused):
    """The runs that were asked for are measured, and the experiment has others. There is nothing to resume."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The time to stop. Checked after a piece of work, never before, so that every part makes progress."""

    at: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @property
    def due(self) -> bool:
        """Whether the time is over."""
        return self.clock() >= self.at

    def check(self, where: str) -> None:
        """Raise `Paused` if the time is over. The caller has saved its work."""
        if self.due:
            raise Paused(where)


NEVER = Pause()
