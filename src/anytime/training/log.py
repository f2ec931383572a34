"""The metrics of a run: metrics.jsonl, and TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anytime.core.errors import UserError
from anytime.training.tasks.task import Metrics


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
