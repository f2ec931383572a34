"""Progress bars on a terminal, for work that takes longer than a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

T = TypeVar("T")
BAR_DELAY = 1.5  # seconds of work before a bar is worth the lines it takes


def _bars(*, size: bool = False) -> Any | None:
    """A `rich` display on standard error, or None where there is no terminal or no `rich`."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    amount = DownloadColumn() if size else TaskProgressColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def track(items: Iterable[T], total: int, label: str, delay: float = BAR_DELAY) -> Iterator[T]:
    """Pass `items` on and, once `patience` seconds have gone, show how many are done and the time left."""
    bars, task, begun = _bars(), None, time.monotonic()
    with ExitStack() as stack:
        for done, item in enumerate(items, start=1):
            yield item
            if bars is None:
                continue
            if task is None and time.monotonic() - begun > delay:
                task = stack.enter_context(bars).add_task(label, total=total)
            if task is not None:
                bars.update(task, completed=done)


class DownloadBar:
    """The four names that pooch asks of a progress bar, shown by `rich`."""

    def __init__(self, label: str, total: int) -> None:
        self._bars = _bars(size=True)
        self.total = total  # pooch overwrites it with the length that the server announces
        if self._bars is not None:
            self._task = self._bars.add_task(label, total=total)
            self._bars.start()

    def update(self, count: int) -> None:
        if self._bars is not None:
            self._bars.update(self._task, advance=count)

    def reset(self) -> None:
        if self._bars is not None:
            self._bars.reset(self._task)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
