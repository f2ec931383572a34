"""What a run tells: metrics.jsonl for machines, a reporter for people, TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from anytime.core.errors import UserError
from anytime.training.tasks.autoencoder import Metrics


@runtime_checkable
class Reporter(Protocol):
    """Who watches a run. The command line draws progress bars; the default says nothing."""

    def stage(self, name: str, step: int, steps: int) -> None:
        """A stage begins, or goes on from `step`."""

    def progress(self, step: int, losses: Metrics) -> None:
        """So far in the current stage; called a few times a second."""

    def say(self, text: str) -> None:
        """Something worth a line."""


class SilentReporter:
    def stage(self, name: str, step: int, steps: int) -> None:
        pass

    def progress(self, step: int, losses: Metrics) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class LineReporter:
    """A line on stderr now and then, where there is no terminal to redraw."""

    SECONDS = 10.0  # between two of them

    def __init__(self) -> None:
        self._name, self._start_time, self._first_step, self._steps, self._last_time = "", 0.0, 0, 0, 0.0

    def stage(self, name: str, step: int, steps: int) -> None:
        self._name, self._start_time, self._first_step, self._steps = name, time.monotonic(), step, steps

    def progress(self, step: int, losses: Metrics) -> None:
        now = time.monotonic()
        if now - self._last_time > self.SECONDS or step == self._steps:
            self._last_time = now
            seconds_per_step = (now - self._start_time) / max(1, step - self._first_step)
            text = f"{self._name} {step:,}/{self._steps:,}  {seconds_per_step * (self._steps - step):.0f} s left  {format_losses(losses)}"
            self.say(text.rstrip())

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def format_losses(losses: Metrics) -> str:
    """In a line.

    >>> format_losses({"loss": 0.12345, "error": 1e-5})
    'loss 0.1235  error 1e-05'
    """
    return "  ".join(f"{name} {value:.4g}" for name, value in losses.items())


class MetricsLog:
    """metrics.jsonl: one object per epoch. On resuming it is cut back to the checkpoint."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        with _writing(path):
            path.touch()
            with path.open("r+b") as file:
                file.truncate(min(size, self.size))  # never longer: a lost file would come back as zeros
        self._writer = _tensorboard(path.parent / "tensorboard")

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def epoch(self, stage: str, epoch: int, step: int, train: Metrics, validation: Metrics, seconds: float) -> None:
        line = {"stage": stage, "epoch": epoch, "step": step, "train": train, "validation": validation, "seconds": seconds}
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._writer is not None:
            for part, metrics in (("train", train), ("validation", validation)):
                for name, value in metrics.items():
                    self._writer.add_scalar(f"{stage}/{part}/{name}", value, epoch)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line that was cut short is left out."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    return [json.loads(line) for line in lines[:-1]]


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); make room and give the same command again") from None


def _tensorboard(directory: Path) -> Any | None:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(directory))
