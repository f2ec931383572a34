"""The metrics of a run: metrics.jsonl, from which an experiment tracker receives a copy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anytime.core.config import MAX_INTEGER, is_finite, parse_json
from anytime.core.errors import UserError
from anytime.core.files import read_limited
from anytime.core.storage import write_atomic
from anytime.training.loop import EpochMetrics
from anytime.training.tracking import Tracking

MAX_BYTES = 1 << 26
"""Bytes of a metrics.jsonl that is read: 64 MiB, about 200,000 epochs."""
Line = dict[str, Any]
"""The metrics of one epoch: its stage, and the fields of `EpochMetrics`."""


class MetricsLog:
    """metrics.jsonl: one JSON object per epoch. It begins with `lines`: those up to the checkpoint if the run is resumed.

    The tracker receives each line, also the first ones if it does not have them, such as those of reused stages.
    """

    def __init__(self, path: Path, lines: Sequence[Line] = (), tracking: Tracking | None = None) -> None:
        self.path, self._tracking = path, tracking
        self._stage, self._before, self._step = "", 0, 0  # the steps of the stages before this one, and of all
        write(path, lines)
        for line in lines:
            self._track(line)

    def append(self, stage: str, epoch: EpochMetrics) -> None:
        """Append the metrics of one epoch."""
        line = {"stage": stage, **asdict(epoch)}
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._track(line)

    def _track(self, line: Line) -> None:
        """Log a line at its step, counted over all stages."""
        if line["stage"] != self._stage:
            self._stage, self._before = line["stage"], self._step
        self._step = self._before + line["step"]
        if self._tracking is not None:
            self._tracking.log(line, self._step)

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        with _writing(self.path), self.path.open("ab") as file:
            os.fsync(file.fileno())


def read(path: Path) -> list[Line]:
    """Read a metrics.jsonl; skip lines that are incomplete or damaged, as after a crash of the machine."""
    if not path.exists():
        return []
    content = read_limited(path, MAX_BYTES, "restore it or remove it")
    return [line for text in content.split(b"\n")[:-1] if (line := _parse(text)) is not None]


def write(path: Path, lines: Sequence[Line]) -> None:
    """Write a metrics.jsonl with these lines."""
    write_atomic(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _parse(text: bytes) -> Line | None:
    """Return the metrics of an epoch, or None if the line is damaged."""
    try:
        line = parse_json(text)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(line, dict) and isinstance(line.get("stage"), str)
    whole = whole and all(type(line.get(key)) is int and 0 <= line[key] <= MAX_INTEGER for key in ("epoch", "step"))
    whole = whole and type(line.get("seconds")) in (int, float) and is_finite(line["seconds"])
    return line if whole and all(_has_loss(line.get(part)) for part in ("train", "validation")) else None


def _has_loss(metrics: Any) -> bool:
    """Return whether this is a mapping of numbers with a loss; NaN is a number."""
    whole = isinstance(metrics, dict) and "loss" in metrics
    return whole and all(type(value) is float or (type(value) is int and is_finite(value)) for value in metrics.values())


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); make room and run the same command again") from None
