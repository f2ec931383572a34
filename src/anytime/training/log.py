"""The metrics of a run: metrics.jsonl, and TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anytime.core.errors import UserError
from anytime.core.storage import write_atomic
from anytime.training.loop import EpochMetrics

Line = dict[str, Any]
"""The metrics of one epoch: its stage, and the fields of `EpochMetrics`."""


class MetricsLog:
    """metrics.jsonl: one JSON object per epoch. It begins with `lines`: those up to the checkpoint if the run is resumed."""

    def __init__(self, path: Path, lines: Sequence[Line] = ()) -> None:
        self.path = path
        write(path, lines)
        self._writer = _tensorboard(path.parent / "tensorboard")

    def append(self, stage: str, epoch: EpochMetrics) -> None:
        """Append the metrics of one epoch."""
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"stage": stage, **asdict(epoch)}) + "\n")
        if self._writer is not None:
            for part, metrics in (("train", epoch.train), ("validation", epoch.validation)):
                for name, value in metrics.items():
                    self._writer.add_scalar(f"{stage}/{part}/{name}", value, epoch.epoch)

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        with _writing(self.path), self.path.open("ab") as file:
            os.fsync(file.fileno())


def read(path: Path) -> list[Line]:
    """Read a metrics.jsonl; skip lines that are incomplete or damaged, as after a crash of the machine."""
    content = path.read_bytes() if path.is_file() else b""
    return [line for text in content.split(b"\n")[:-1] if (line := _parse(text)) is not None]


def write(path: Path, lines: Sequence[Line]) -> None:
    """Write a metrics.jsonl with these lines."""
    write_atomic(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _parse(text: bytes) -> Line | None:
    """Return the metrics of an epoch, or None if the line is damaged."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(line, dict) and isinstance(line.get("stage"), str)
    whole = whole and all(type(line.get(key)) is int for key in ("epoch", "step"))
    whole = whole and isinstance(line.get("seconds"), int | float)
    return line if whole and all(_has_loss(line.get(part)) for part in ("train", "validation")) else None


def _has_loss(metrics: Any) -> bool:
    return isinstance(metrics, dict) and isinstance(metrics.get("loss"), int | float)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); make room and run the same command again") from None


def _tensorboard(directory: Path) -> Any | None:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(directory))
