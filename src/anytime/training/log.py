"""The metrics of a run: metrics.jsonl, and TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anytime.core.errors import UserError
from anytime.training.loop import EpochMetrics


class MetricsLog:
    """metrics.jsonl: one JSON object per epoch. Resuming truncates it to its size at the checkpoint."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        with _writing(path):
            path.touch()
            with path.open("r+b") as file:
                file.truncate(min(size, self.size))  # never longer: a lost file would come back as zeros
        self._writer = _tensorboard(path.parent / "tensorboard")

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.path.stat().st_size

    def append(self, stage: str, epoch: EpochMetrics) -> None:
        """Append the metrics of one epoch."""
        with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"stage": stage, **asdict(epoch)}) + "\n")
        if self._writer is not None:
            for part, metrics in (("train", epoch.train), ("validation", epoch.validation)):
                for name, value in metrics.items():
                    self._writer.add_scalar(f"{stage}/{part}/{name}", value, epoch.epoch)


def read(path: Path) -> list[dict[str, Any]]:
    """Read a metrics.jsonl; skip a last line that is incomplete."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    return [json.loads(line) for line in lines[:-1]]


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
