"""Progress bars in notebooks: HTML that is replaced in place, without widgets."""

from __future__ import annotations

import html
import importlib
import os
import sys
import time
from typing import Any

UPDATE_SECONDS = 0.25  # between two updates: each is a message to the browser


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def started_by_notebook() -> bool:
    """Return whether a notebook's `!command` started this process: its output looks like a terminal and is none."""
    return "JPY_PARENT_PID" in os.environ or "inline" in os.environ.get("MPLBACKEND", "")


class NotebookBar:
    """A progress bar in the output of a cell. It stays there when the work is done."""

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self.label, self.total, self.done, self.text = label, total, done, ""
        self._first, self._started, self._shown = done, time.monotonic(), time.monotonic()
        display = importlib.import_module("IPython.display").display
        self._handle: Any = display(self, display_id=True)

    @property
    def percent(self) -> int:
        """Share of the work that is done, from 0 to 100."""
        return min(100, 100 * self.done // max(1, self.total))

    def update(self, done: int, text: str = "") -> None:
        """Show that `done` of the total are done, a few times a second."""
        self.done, self.text, now = done, text, time.monotonic()
        if now - self._shown >= UPDATE_SECONDS or done >= self.total:
            self._shown = now
            self._handle.update(self)

    def close(self) -> None:
        """Show the last state."""
        self._handle.update(self)

    def __repr__(self) -> str:
        """Return what the bar shows as text, for a notebook that is read without HTML."""
        return f"{self.label}  {self.percent} %  {self.done:,} of {self.total:,}  {self._times()}  {self.text}".rstrip()

    def _repr_html_(self) -> str:
        style = "width: 16em; vertical-align: middle"
        bar = f'<progress value="{min(self.done, self.total)}" max="{max(1, self.total)}" style="{style}"></progress>'
        return f'<div style="font-family: monospace; white-space: pre-wrap">{bar} {html.escape(repr(self))}</div>'

    def _times(self) -> str:
        used, here = time.monotonic() - self._started, self.done - self._first
        if self.done >= self.total or here <= 0:
            return f"{used:.0f} s"
        return f"{used:.0f} s, {used / here * (self.total - self.done):.0f} s left"
