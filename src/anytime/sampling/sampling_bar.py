"""A progress bar in notebooks for requests that take longer than a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from anytime.core.notebook import NotebookBar, in_notebook
from anytime.sampling.session import Progress

SHOW_AFTER = 1.0  # seconds before anything is shown
MIN_GPU_ROWS = 1024  # a GPU waits for every step that is reported: too long for requests of fewer rows


@contextmanager
def sampling_bar(progress: Progress | None, codes: int, rows: int, device: torch.device) -> Iterator[Progress | None]:
    """Yield `progress`; if it is None, yield in a notebook what shows a bar after a second."""
    if progress is not None or not in_notebook() or (device.type != "cpu" and rows < MIN_GPU_ROWS):
        yield progress
        return
    bars: list[NotebookBar] = []

    def show(done: int, seconds: float) -> None:
        if not bars and seconds > SHOW_AFTER and done < codes:
            bars.append(NotebookBar("sampling", codes, done))
        for bar in bars:
            bar.update(done, f"codes of {rows:,} samples")

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()
