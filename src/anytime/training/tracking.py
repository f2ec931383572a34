"""Experiment trackers: TensorBoard, Weights & Biases and trackio receive the config and the metrics of a run.

`tracker.json` in the run directory records which run of the tracker this is and the last step that it received. A resumed run
continues there and repeats no step.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal

from anytime.core.config import read_json
from anytime.core.errors import UserError, reason
from anytime.core.storage import write_json

TrackerName = Literal["tensorboard", "wandb", "trackio"]
RECORD = "tracker.json"
"""Run and last step of each tracker, in the run directory."""
PROJECT = "anytime"
"""The project of a run, unless the tracker's own variable names another."""


class Tracker(ABC):
    """A run of an experiment tracker."""

    package: ClassVar[str]
    """Package that it needs."""
    advice: ClassVar[str] = "leave out `log`"
    """What to do if it cannot start."""

    @abstractmethod
    def __init__(self, run_dir: Path, run: str, config: Mapping[str, Any]) -> None:
        """Start the run with this identifier, or continue it."""

    @abstractmethod
    def log(self, line: Mapping[str, Any], step: int) -> None:
        """Log the metrics of an epoch at a step counted over all stages."""

    @abstractmethod
    def finish(self, *, failed: bool) -> None:
        """Send what is left and end the run."""


class TensorBoard(Tracker):
    """Event files in `tensorboard/` of the run directory; each stage counts its own epochs."""

    package = "tensorboard"

    def __init__(self, run_dir: Path, run: str, config: Mapping[str, Any]) -> None:
        self._writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(run_dir / "tensorboard"))
        self._writer.add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```")

    def log(self, line: Mapping[str, Any], step: int) -> None:
        """Log an epoch and flush it: a killed run keeps it."""
        for name, value in _metrics(line):
            self._writer.add_scalar(name, value, line["epoch"])
        self._writer.flush()

    def finish(self, *, failed: bool) -> None:
        """Close the event file."""
        self._writer.close()


class WandB(Tracker):
    """A run of Weights & Biases; its files are in `wandb/` of the run directory."""

    package = "wandb"
    advice = "run `wandb login`, or set WANDB_MODE=offline"

    def __init__(self, run_dir: Path, run: str, config: Mapping[str, Any]) -> None:
        self._run = importlib.import_module("wandb").init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", run_dir.resolve().name),
            id=run,
            resume="allow",
            config=dict(config),
            dir=str(run_dir),
            settings={"console": "off"},  # it would record progress bars
        )

    def log(self, line: Mapping[str, Any], step: int) -> None:
        """Log an epoch."""
        self._run.log(dict(_metrics(line)) | {f"{line['stage']}/epoch": line["epoch"]}, step=step)

    def finish(self, *, failed: bool) -> None:
        """Upload what is left; a run that failed is marked as such until it is resumed."""
        self._run.finish(exit_code=int(failed))


class Trackio(Tracker):
    """A run of trackio, in its local database or on the Space that its variables name."""

    package = "trackio"

    def __init__(self, run_dir: Path, run: str, config: Mapping[str, Any]) -> None:
        name = f"{run_dir.resolve().name}-{run}"  # trackio finds a run by its name
        self._trackio = importlib.import_module("trackio")
        self._trackio.init(project=PROJECT, name=name, config=dict(config), resume="allow", embed=False)

    def log(self, line: Mapping[str, Any], step: int) -> None:
        """Log an epoch."""
        self._trackio.log(dict(_metrics(line)) | {f"{line['stage']}/epoch": line["epoch"]}, step=step)

    def finish(self, *, failed: bool) -> None:
        """Wait until everything is stored."""
        self._trackio.finish()


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "trackio": Trackio}


def _metrics(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for part in ("train", "validation"):
        for name, value in line[part].items():
            yield f"{line['stage']}/{part}/{name}", value


def is_installed(name: str) -> bool:
    """Return whether a tracker's package is installed; a directory of that name, which trackers make, is not one."""
    spec = importlib.util.find_spec(TRACKERS[name].package)
    return spec is not None and spec.origin is not None


def check_tracker(name: str | None) -> None:
    """Refuse a tracker that is unknown or whose package is missing."""
    if name is None:
        return
    if name not in TRACKERS:
        raise UserError(f"`log` {name!r} is not a tracker; choose one of {', '.join(TRACKERS)}")
    package = TRACKERS[name].package
    if not is_installed(name):
        raise UserError(f"`log` {name} needs the package {package}, which is not installed; run `pip install {package}`")


def start_tracking(
    name: TrackerName | None, run_dir: Path, config: Mapping[str, Any], say: Callable[[str], None]
) -> Tracking | None:
    """Start the tracker of a run, by default TensorBoard if it is installed."""
    if name is None and not is_installed("tensorboard"):
        return None
    return Tracking(name or "tensorboard", run_dir, config, say)


class Tracking:
    """A tracker that receives every step once, and whose failure does not end the training."""

    def __init__(self, name: TrackerName, run_dir: Path, config: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self._path, self._name, self._say = run_dir / RECORD, name, say
        self._record = read_json(self._path) if self._path.exists() else {}
        known = self._record.get(name, {"run": secrets.token_hex(4), "step": 0})
        if not isinstance(known, dict) or not isinstance(known.get("run"), str) or type(known.get("step")) is not int:
            raise UserError(f"{self._path} does not name a run of {name}; restore it or remove it")
        self._run, self._step = str(known["run"]), int(known["step"])
        self._write()  # before the tracker starts: a killed run must not start a second one
        try:
            self._tracker: Tracker | None = TRACKERS[name](run_dir, self._run, config)
        except Exception as error:
            raise UserError(f"`log` {name} cannot start ({reason(error)}); {TRACKERS[name].advice}") from error

    def log(self, line: Mapping[str, Any], step: int) -> None:
        """Log an epoch, unless the tracker has it already."""
        if self._tracker is None or step <= self._step:
            return
        try:
            self._tracker.log(line, step)
            self._step = step
            self._write()
        except Exception as error:  # of the tracker, its connection or the disk
            self._stop(error)

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._tracker is None:
            return
        try:
            self._tracker.finish(failed=kind is not None)
        except Exception as failure:
            self._stop(failure)

    def _write(self) -> None:
        write_json(self._path, {**self._record, self._name: {"run": self._run, "step": self._step}})

    def _stop(self, error: Exception) -> None:
        self._tracker = None
        self._say(f"{self._name} stopped ({reason(error)}); metrics.jsonl continues, and a resumed run sends the rest")
