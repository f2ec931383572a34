"""Progress of long work: the `Reporter` protocol, lines on stderr, and progress bars on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Protocol, TypeVar, runtime_checkable

from anytime.core.errors import printable
from anytime.core.notebook import NotebookBar, in_notebook, started_by_notebook

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
        print(printable(text), file=sys.stderr, flush=True)


def format_losses(losses: Mapping[str, float]) -> str:
    """Return losses, or a rate, as one line.

    >>> format_losses({"loss": 0.12345, "error": 1e-5}), format_losses({"samples/s": 12345.6})
    ('loss 0.1235  error 1e-05', 'samples/s 12,346')
    """
    return "  ".join(f"{name} {value:{',.0f' if 1e4 <= value < 1e15 else '.4g'}}" for name, value in losses.items())


class NotebookReporter:
    """A reporter with one bar per stage and its losses, in the output of a cell."""

    def __init__(self) -> None:
        self._bar: NotebookBar | None = None

    def stage(self, name: str, step: int, steps: int) -> None:
        """Begin a stage, or resume it at `step`."""
        self._bar = NotebookBar(name, steps, step)

    def progress(self, step: int, losses: Mapping[str, float]) -> None:
        """Show the current step and the losses."""
        if self._bar is not None:
            self._bar.update(step, format_losses(losses))

    def say(self, text: str) -> None:
        """Print one line."""
        print(printable(text))


class WholeReporter:
    """A reporter that adds the progress of all planned stages, and the time left for them, to that of each."""

    def __init__(self, inner: Reporter, planned: Mapping[str, int]) -> None:
        self._inner, self._planned, self._started = inner, dict(planned), time.monotonic()
        self._name, self._steps, self._before, self._step, self._worked = "", 0, 0, 0, 0

    def stage(self, name: str, step: int, steps: int) -> None:
        """Begin a stage, or resume it at `step`; planned stages before it that were not begun are skipped."""
        names = list(self._planned)
        if name in self._planned:
            self._before = sum(self._planned[earlier] for earlier in names[: names.index(name)])
            self._planned[name] = steps
        self._name, self._steps, self._step = name, steps, step
        self._inner.stage(name, step, steps)

    def progress(self, step: int, losses: Mapping[str, float]) -> None:
        """Report the current step of the stage, with what is left of all stages."""
        if self._name in self._planned:
            self._worked, self._step = self._worked + step - self._step, step
            done, total = self._before + step, max(1, sum(self._planned.values()))
            left = (time.monotonic() - self._started) / max(1, self._worked) * (total - done)
            losses = {**losses, "percent of all examples": float(100 * done // total), "seconds left": float(round(left))}
        self._inner.progress(step, losses)

    def say(self, text: str) -> None:
        """Show one line of text."""
        self._inner.say(text)


def default_reporter() -> Reporter:
    """Return a reporter with bars in a notebook, and a silent one elsewhere."""
    return NotebookReporter() if in_notebook() else SilentReporter()


@runtime_checkable
class Bar(Protocol):
    """A progress bar that is being shown."""

    def update(self, done: int) -> None:
        """Show that `done` of the total are done."""

    def close(self) -> None:
        """End the display."""


class _TerminalBar:
    """A bar of `rich` on standard error, removed at the end; nothing without a terminal."""

    def __init__(self, label: str, total: int, *, is_size: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        amount = DownloadColumn() if is_size else TaskProgressColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
        disable = not sys.stderr.isatty() or started_by_notebook()
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True, disable=disable)
        self._task = self._bars.add_task(label, total=total)
        self._bars.start()

    def update(self, done: int) -> None:
        """Show that `done` of the total are done."""
        self._bars.update(self._task, completed=done)

    def close(self) -> None:
        """Remove the bar."""
        self._bars.stop()


def _bar(label: str, total: int, *, is_size: bool = False) -> Bar:
    return NotebookBar(label, total) if in_notebook() else _TerminalBar(label, total, is_size=is_size)


def track(items: Iterable[T], total: int, label: str, delay: float = 1.5) -> Iterator[T]:
    """Yield `items`; after `delay` seconds, show how many are done and the time left."""
    start, bar = time.monotonic(), None
    with ExitStack() as stack:
        for done, item in enumerate(items, start=1):
            yield item
            if bar is None and time.monotonic() - start > delay:
                bar = stack.enter_context(closing(_bar(label, total)))
            if bar is not None:
                bar.update(done)


class DownloadBar:
    """A progress bar with the interface that pooch expects."""

    def __init__(self, label: str, total: int) -> None:
        self._bar, self._done = _bar(label, total, is_size=True), 0
        self.total = total  # pooch replaces it by the length that the server announces

    def update(self, count: int) -> None:
        """Add `count` bytes."""
        self._done += count
        self._bar.update(self._done)

    def reset(self) -> None:
        """Start again from zero bytes."""
        self._done = 0

    def close(self) -> None:
        """End the display."""
        self._bar.close()
