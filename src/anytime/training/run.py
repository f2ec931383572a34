"""A training run as a folder: config, environment, metrics, checkpoints, samples, and at the end the model.

The same call again goes on where the last one stopped, however it stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anytime import __version__, collective, randomness, storage
from anytime.config import from_dict, read_json, to_dict
from anytime.data import Dataset
from anytime.errors import UserError
from anytime.model import AnytimeModel
from anytime.training import checkpoint as checkpoints
from anytime.training import distributed, log, samples
from anytime.training.log import Metrics, Reporter, Silent
from anytime.training.loop import Compute, Hooks, StageState, run_stage
from anytime.training.recipes import RunConfig
from anytime.training.tasks import AutoencoderTask, Numbers, PriorTask, Task

STAGES = ("pretrain", "ordered", "prior")


def train(
    config: RunConfig,
    dataset: Dataset,
    folder: Path,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    command: str = "",
    pretrained: Path | None = None,
) -> AnytimeModel:
    """Train through all stages, or go on with a run that was interrupted; returns the finished model.

    `pretrained` is another run whose first stage is the same: its result is taken over instead of being computed again.
    """
    if dataset.shape != config.model.autoencoder.shape:
        raise UserError(f"the data has shape {dataset.shape}, the model takes {config.model.autoencoder.shape}")
    with distributed.process_group(device or torch.device("cpu")) as own:
        reporter = reporter if reporter is not None and distributed.is_main() else Silent()
        with _locked(folder, config):
            run = Run(config, dataset, folder, own, reporter, command)
            return run.finish(pretrained)


@dataclass(frozen=True, slots=True)
class _Paths:
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config.json"

    @property
    def environment(self) -> Path:
        return self.folder / "environment.json"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def pretrained(self) -> Path:
        """The autoencoder after the first stage, for runs that share it."""
        return self.checkpoints / "pretrained.safetensors"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def model(self) -> Path:
        return self.folder / "model"


class Run:
    """One process's part in a run. Rank 0 alone writes."""

    def __init__(
        self, config: RunConfig, dataset: Dataset, folder: Path, device: torch.device, reporter: Reporter, command: str
    ) -> None:
        self.config, self.paths, self.device, self.reporter = config, _Paths(folder), device, reporter
        if config.examples is not None:
            dataset = dataset.subset(config.examples, max(64, config.examples // 10))
        self.train, self.validation = (part.to(device) for part in (dataset.train, dataset.validation))
        self.compute = Compute(device, config.precision, config.compile)
        self.main = distributed.is_main()
        if self.main:
            _record(self.paths.environment, device, dataset, command)
        torch.manual_seed(config.seed)
        self.model = AnytimeModel(config.model).to(device)
        if device.type == "cuda":
            self.model.autoencoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.last_checkpoint = time.monotonic()

    def finish(self, pretrained: Path | None = None) -> AnytimeModel:
        start = self._latest()
        if start is None and pretrained is not None:
            start = self._shared(pretrained)
        first = 0 if start is None else STAGES.index(start.position.stage)
        self.done = 0 if start is None else start.position.total_steps - start.position.step
        if start is not None:
            self.model.load_state_dict(start.model)
        if self.main:
            self.metrics = Metrics(self.paths.metrics, 0 if start is None else start.position.metrics_bytes)
        for index in range(first, len(STAGES)):
            self._stage(index, start if index == first else None)
        self.model.eval()
        if self.main:
            self.model.save(self.paths.model)
        return self.model

    def _latest(self) -> checkpoints.Checkpoint | None:
        """Rank 0 looks first and sets damaged files aside; the others then see what it saw."""
        found = checkpoints.read_latest(self.paths.checkpoints, self.reporter.say) if self.main else None
        distributed.barrier()
        return found if self.main else checkpoints.read_latest(self.paths.checkpoints, self.reporter.say)

    def _shared(self, other: Path) -> checkpoints.Checkpoint:
        """The start of the second stage, taken from a run whose first stage has the same config and seed."""
        theirs, ours = (_first_stage(config) for config in (read_config(other), self.config))
        _refuse_difference(theirs, ours, f"--pretrained {other} was trained")
        weights, _, _ = storage.read_tensors(_Paths(other).pretrained)
        self.model.autoencoder.load_state_dict(weights)
        lines = [line for line in log.read(_Paths(other).metrics) if line["stage"] == STAGES[0]]
        size = 0
        if self.main:
            content = "".join(json.dumps(line) + "\n" for line in lines).encode()
            storage.write_whole(self.paths.metrics, content)
            storage.write_tensors(self.paths.pretrained, weights)
            size = len(content)
        position = checkpoints.Position(STAGES[1], 0, int(lines[-1]["step"]), size, None)
        return checkpoints.Checkpoint(position, self.model.state_dict(), {}, {}, torch.zeros(0))

    def _stage(self, index: int, start: checkpoints.Checkpoint | None) -> None:
        seed = randomness.derive(self.config.seed, STAGES[index])
        task = self._task(index, seed)
        state = StageState()
        if start is not None:
            state = StageState(start.position.step, start.position.best_loss, start.best, start.optimizer, start.running)
        steps = task.epochs * task.steps_per_epoch
        self.reporter.stage(task.name, state.step, steps)
        hooks = Hooks(
            progress=self.reporter.progress,
            epoch=lambda *report: self._epoch(task, *report),
            checkpoint_due=lambda: self.main and time.monotonic() - self.last_checkpoint >= self.config.checkpoint_seconds,
            checkpoint=lambda state: self._save(task.name, state),
        )
        run_stage(task, state, self.compute, hooks, seed)
        self.done += steps
        if self.main and index == 0:
            storage.write_tensors(self.paths.pretrained, self.model.autoencoder.state_dict())
        if self.main and index + 1 < len(STAGES):
            self._save(STAGES[index + 1], StageState())

    def _task(self, index: int, seed: int) -> Task:
        autoencoder = self.model.autoencoder
        if index < 2:
            stage = (self.config.pretrain, self.config.ordered)[index]
            return AutoencoderTask(STAGES[index], stage, autoencoder, self.train, self.validation, seed)
        self.reporter.say(f"encoding {len(self.train):,} examples")
        train, validation = (samples.encoded(autoencoder, part) for part in (self.train, self.validation))
        return PriorTask(self.config.prior, self.model.prior, train, validation, seed)

    def _epoch(self, task: Task, epoch: int, step: int, train: Numbers, validation: Numbers, seconds: float) -> None:
        self.reporter.progress(step, train | {f"validation {k}": v for k, v in validation.items()})
        if not self.main:
            return
        self.metrics.epoch(task.name, epoch, step, train, validation, seconds)
        every = max(1, task.epochs // max(1, self.config.sample_grids))
        if self.config.sample_grids and (epoch % every == 0 or epoch == task.epochs):
            path = self.paths.folder / "samples" / f"{task.name}-{epoch:04d}.png"
            samples.write_grid(path, self.model, self.validation[:16] if task.name != "prior" else None)

    def _save(self, stage: str, state: StageState) -> None:
        position = checkpoints.Position(stage, state.step, self.done + state.step, self.metrics.size, state.best_loss)
        whole = checkpoints.Checkpoint(position, self.model.state_dict(), state.best, state.optimizer, state.running)
        checkpoints.write(self.paths.checkpoints, whole)
        self.last_checkpoint = time.monotonic()


@contextmanager
def _locked(folder: Path, config: RunConfig) -> Iterator[None]:
    """Hold the run's folder against a second process, with its config written or checked."""
    if not distributed.is_main():
        distributed.barrier()
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); choose another place with --out") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is training in {folder}; wait for it or choose another --out") from None
        _agree(folder / "config.json", config)
        distributed.barrier()
        yield


def _agree(path: Path, config: RunConfig) -> None:
    """Write the config of a new run; refuse one that differs from what is there, naming the key."""
    if not path.exists():
        storage.write_json(path, to_dict(config))
        return
    _refuse_difference(read_json(path), to_dict(config), f"{path.parent} holds a run")


def _refuse_difference(theirs: dict[str, Any], ours: dict[str, Any], what: str) -> None:
    there, here = _flat(theirs), _flat(ours)
    for key in sorted(there.keys() | here.keys()):
        if (old := there.get(key)) != (new := here.get(key)):
            raise UserError(f"{what} with {key} = {old}, not {new}; choose another folder")


def _first_stage(config: RunConfig) -> dict[str, Any]:
    """All that the result of the first stage depends on."""
    whole = to_dict(config)
    parts = {key: whole[key] for key in ("seed", "examples", "precision", "compile", "pretrain")}
    # The prior's shape too: the networks are drawn one after the other from one seed.
    return parts | {"model": whole["model"]}


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, value in tree.items() for k, v in _flat(value, f"{prefix}.{name}" if prefix else name).items()}


def read_config(folder: Path) -> RunConfig:
    """The config of a run's folder."""
    return from_dict(RunConfig, read_json(folder / "config.json"), str(folder / "config.json"))


def _record(path: Path, device: torch.device, dataset: Dataset, command: str) -> None:
    """Add this start to environment.json: versions, hardware, commit, command and data."""
    starts = read_json(path)["starts"] if path.exists() else []
    starts.append({**environment(device), "command": command, "data": dataset.source, "examples": len(dataset.train)})
    storage.write_json(path, {"starts": starts})


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware and commit, for files that hold numbers."""
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {
        "anytime": __version__,
        "commit": _commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "platform": platform.platform(terse=True),
        "hardware": hardware,
        "ranks": collective.ranks(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _commit() -> str | None:
    """The commit of a checkout; a copy without its git folder may name it in ANYTIME_COMMIT."""
    if named := os.environ.get("ANYTIME_COMMIT"):
        return named
    here = Path(__file__).parent
    git = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
