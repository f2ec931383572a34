"""Progress of long work: the `Reporter` protocol, lines on stderr, and progress bars on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")


@runtime_checkable
class Reporter(Protocol):
    """Receives the progress of a run. The command line shows progress bars; `SilentReporter` shows nothing."""

    def stage(self, name: str, step: int, steps: int) -> None:
        """Begin a stage, or resume it at `step`."""

    def progress(self, step: int, losses: Mapping[str, float]) -> None:
        """Report the current step of the stage; called a few times a second."""

    def say(self, text: str) -> None:
        """Show one line of text."""


class SilentReporter:
    """A reporter that shows nothing."""

    def stage(self, name: str, step: int, steps: int) -> None:
        """Ignore a stage."""

    def progress(self, step: int, losses: Mapping[str, float]) -> None:
        """Ignore a step."""

    def say(self, text: str) -> None:
        """Ignore a line."""


class LineReporter:
    """A reporter that prints a line on stderr every few seconds, for output that is not a terminal."""

    SECONDS = 10.0  # between two lines

    def __init__(self) -> None:
        self._name, self._start_time, self._first_step, self._steps, self._last_time = "", 0.0, 0, 0, 0.0

    def stage(self, name: str, step: int, steps: int) -> None:
        """Begin a stage, or resume it at `step`."""
        self._name, self._start_time, self._first_step, self._steps = name, time.monotonic(), step, steps

    def progress(self, step: int, losses: Mapping[str, float]) -> None:
        """Print the step, the time left and the losses, if the last line is old enough."""
        now = time.monotonic()
        if now - self._last_time > self.SECONDS or step == self._steps:
            self._last_time = now
            left = (now - self._start_time) / max(1, step - self._first_step) * (self._steps - step)
            self.say(f"{self._name} {step:,}/{self._steps:,}  {left:.0f} s left  {format_losses(losses)}".rstrip())

    def say(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)


def format_losses(losses: Mapping[str, float]) -> str:
    """Return losses as one line.

    >>> format_losses({"loss": 0.12345, "error": 1e-5})
    'loss 0.1235  error 1e-05'
    """
    return "  ".join(f"{name} {value:.4g}" for name, value in losses.items())


def _bars(*, size: bool = False) -> Progress:
    """Return a `rich` display on standard error, which shows nothing without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if size else TaskProgressColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def track(items: Iterable[T], total: int, label: str, delay: float = 1.5) -> Iterator[T]:
    """Yield `items`; after `delay` seconds, show how many are done and the time left."""
    bars, task, start = _bars(), None, time.monotonic()
    with ExitStack() as stack:
        for done, item in enumerate(items, start=1):
            yield item
            if task is None and time.monotonic() - start > delay:
                task = stack.enter_context(bars).add_task(label, total=total)
            if task is not None:
                bars.update(task, completed=done)


class DownloadBar:
    """A progress bar with the interface that pooch expects, shown by `rich`."""

    def __init__(self, label: str, total: int) -> None:
        self._bars = _bars(size=True)
        self.total = total  # pooch replaces it by the length that the server announces
        self._task = self._bars.add_task(label, total=total)
        self._bars.start()

    def update(self, count: int) -> None:
        """Add `count` bytes."""
        self._bars.update(self._task, advance=count)

    def reset(self) -> None:
        """Start again from zero bytes."""
        self._bars.reset(self._task)

    def close(self) -> None:
        """Remove the bar."""
        self._bars.stop()
