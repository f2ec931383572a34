"""Progress on stderr: bars on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from anytime.core.progress import LineReporter, format_losses


class TrainingConsole:
    """A reporter with one bar per stage, the time left and the current losses."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        columns = (
            TextColumn("{task.description:>9}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            # The first to be cut on a narrow terminal.
            TextColumn("{task.fields[losses]}", table_column=Column(ratio=1, no_wrap=True)),
        )
        self.bars = Progress(*columns, console=self.console, expand=True, disable=not self.console.is_terminal)
        self._bar: TaskID | None = None
        self.lines = LineReporter()

    def __enter__(self) -> TrainingConsole:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def stage(self, name: str, step: int, steps: int) -> None:
        """Begin a stage, or resume it at `step`."""
        self._bar = self.bars.add_task(name, total=steps, completed=step, losses="")
        self.lines.stage(name, step, steps)
        if step:
            self.say(f"resuming the {name} stage at step {step:,} of {steps:,}")

    def progress(self, step: int, losses: Mapping[str, float]) -> None:
        """Show the current step and the losses."""
        if not self.console.is_terminal:
            self.lines.progress(step, losses)
        elif self._bar is not None:
            self.bars.update(self._bar, completed=step, losses=format_losses(losses))

    def say(self, text: str) -> None:
        """Print one line above the bars."""
        if self.console.is_terminal:
            self.console.print(text, highlight=False)
        else:
            self.lines.say(text)


class SamplingConsole:
    """A bar with the codes done, the time used and the time left, for sampling that takes longer than a second."""

    SHOW_AFTER = 1.0  # seconds before anything is shown

    def __init__(self, codes: int, within: float | None) -> None:
        self.codes, self.within = codes, within
        columns = (TextColumn("sampling"), BarColumn(), TextColumn("{task.fields[text]}"))
        self.console = Console(stderr=True)
        self.bars = Progress(*columns, console=self.console, transient=True)
        self._bar: TaskID | None = None

    def __enter__(self) -> SamplingConsole:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self.bars.stop()

    def progress(self, codes: int, used: float) -> None:
        """Show the number of codes done after `used` seconds."""
        with suppress(OSError):  # the terminal has hung up
            self._show(codes, used)

    def _show(self, codes: int, used: float) -> None:
        if used < self.SHOW_AFTER or not self.console.is_terminal:
            return
        if self._bar is None:
            self._bar = self.bars.add_task("", total=self.codes, text="")
            self.bars.start()
        left = used / codes * (self.codes - codes)
        left = left if self.within is None else min(left, max(0.0, self.within - used))
        text = f"{codes} of {self.codes} codes  {used:.1f} s used  {left:.1f} s left  Ctrl-C stops here and keeps the sample"
        self.bars.update(self._bar, completed=codes, text=text)
