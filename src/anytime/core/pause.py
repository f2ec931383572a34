"""Work in parts: stop after so many minutes at a point from which the same call goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


class Paused(Exception):  # noqa: N818 (nothing went wrong)
    """The time is over. All that was done is saved, and the same call goes on from there."""


@dataclass(frozen=True, slots=True)
class Pause:
    """When to stop. Asked after a piece of work was done, never before: every part gets on, however short it is."""

    at: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @property
    def due(self) -> bool:
        return self.clock() >= self.at

    def check(self, where: str) -> None:
        """Stop here if it is time; what came before must be saved."""
        if self.due:
            raise Paused(where)


NEVER = Pause()
