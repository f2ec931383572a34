"""Progress on stderr: bars on a terminal and in a notebook, a line every few seconds elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from anytime.core.errors import printable
from anytime.core.notebook import NotebookBar, in_notebook, started_by_notebook
from anytime.core.progress import LineReporter, NotebookReporter, Reporter, format_losses


@contextmanager
def shown_log(verbose: bool) -> Iterator[None]:
    """Print on stderr what the package logs, such as why a faster way was not taken."""
    if not verbose:
        yield
        return
    log, handler = logging.getLogger("anytime"), logging.StreamHandler(sys.stderr)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def _is_terminal(console: Console) -> bool:
    """Return whether bars of `rich` are readable here. It takes a notebook for a terminal."""
    return console.is_terminal and not in_notebook() and not started_by_notebook()


class TrainingConsole:
    """A reporter with one bar per stage, the time left and the current losses."""

    RESUMING = "resuming the {name} stage at step {step:,} of {steps:,}"

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.on_terminal = _is_terminal(self.console)
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
        self.bars = Progress(*columns, console=self.console, expand=True, disable=not self.on_terminal)
        self._bar: TaskID | None = None
        self.plain: Reporter = NotebookReporter() if in_notebook() else LineReporter()

    def __enter__(self) -> TrainingConsole:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def stage(self, name: str, step: int, steps: int) -> None:
        """Begin a stage, or resume it at `step`."""
        if self.on_terminal:
            self._bar = self.bars.add_task(name, total=steps, completed=step, losses="")
        else:
            self.plain.stage(name, step, steps)
        if step:
            self.say(self.RESUMING.format(name=name, step=step, steps=steps))

    def progress(self, step: int, losses: Mapping[str, float]) -> None:
        """Show the current step and the losses."""
        if not self.on_terminal:
            self.plain.progress(step, losses)
        elif self._bar is not None:
            self.bars.update(self._bar, completed=step, losses=format_losses(losses))

    def say(self, text: str) -> None:
        """Print one line above the bars."""
        if self.on_terminal:
            self.console.print(printable(text), highlight=False, markup=False, emoji=False)
        else:
            self.plain.say(text)


class BulkConsole(TrainingConsole):
    """A reporter with a bar for the samples in finished shards, their rate and the time left."""

    RESUMING = "{step:,} of {steps:,} samples are there already"

    def __init__(self, advice: str = "") -> None:
        super().__init__()
        self.advice = advice

    def stage(self, name: str, step: int, steps: int) -> None:
        """Begin or resume; say how to be faster if there is work to do."""
        super().stage(name, step, steps)
        if self.advice and step < steps:
            self.say(self.advice)


class SamplingConsole:
    """A bar with the codes done, the time used and the time left, for sampling that takes longer than a second."""

    SHOW_AFTER = 1.0  # seconds before anything is shown

    def __init__(self, codes: int, within: float | None) -> None:
        self.codes, self.within = codes, within
        columns = (TextColumn("sampling"), BarColumn(), TextColumn("{task.fields[text]}"))
        self.console = Console(stderr=True)
        self.bars = Progress(*columns, console=self.console, transient=True)
        self._bar: TaskID | None = None
        self._notebook_bar: NotebookBar | None = None

    def __enter__(self) -> SamplingConsole:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self.bars.stop()
        if self._notebook_bar is not None:
            self._notebook_bar.close()

    def progress(self, codes: int, used: float) -> None:
        """Show the number of codes done after `used` seconds."""
        with suppress(OSError):  # the terminal has hung up
            self._show(codes, used)

    def _show(self, codes: int, used: float) -> None:
        if used < self.SHOW_AFTER:
            return
        if in_notebook():
            self._notebook_bar = self._notebook_bar or NotebookBar("sampling", self.codes, codes)
            self._notebook_bar.update(codes, "codes")
            return
        if not _is_terminal(self.console):
            return
        if self._bar is None:
            self._bar = self.bars.add_task("", total=self.codes, text="")
            self.bars.start()
        left = used / codes * (self.codes - codes)
        left = left if self.within is None else min(left, max(0.0, self.within - used))
        text = f"{codes} of {self.codes} codes  {used:.1f} s used  {left:.1f} s left  Ctrl-C stops here and keeps the sample"
        self.bars.update(self._bar, completed=codes, text=text)
