"""The run directory: its layout, its lock, and which other run may reuse its stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from anytime.core import distributed, storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.data import Dataset
from anytime.data.recordings import Recordings
from anytime.training import run_files, run_lock
from anytime.training.config import BaseRunConfig, RunConfig


class RunPaths:
    """Paths in a run directory."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.config = run_dir / "config.json"  # the resolved config
        self.environment = run_dir / "environment.json"  # versions, hardware and data of every start
        self.metrics = run_dir / "metrics.jsonl"  # one object per epoch
        self.checkpoints = run_dir / "checkpoints"
        self.model = run_dir / "model"  # the finished model
        self.files = run_dir / run_files.FILE  # hashes of the files of a finished run

    @property
    def finished(self) -> bool:
        """Whether the model is there; its config is written last."""
        return (self.model / "config.json").is_file()

    def stage_weights(self, stage: str) -> Path:
        """Weights at the end of a stage, for runs that reuse it."""
        return self.checkpoints / f"after-{stage}.safetensors"


REUSABLE_STAGES = ("pretrain", "ordered", "prior")
"""Stages that another run may reuse, in order."""
COMPUTE_KEYS = ("precision", "compile", "graph", "checkpoint_seconds", "sample_grids")
"""Config keys that say how a run is computed, not what it trains."""


@contextmanager
def lock_run(run_dir: Path, config: BaseRunConfig[Any]) -> Iterator[None]:
    """Lock the run directory against a second process; write the config of a new run, check that of an old one."""
    if not distributed.is_main():
        distributed.barrier()
        yield
        return
    with run_lock.hold_lock(run_dir):
        path = RunPaths(run_dir).config
        if path.exists():
            check_same_config(read_json(path), to_dict(config), f"{run_dir} holds a run")
        else:
            storage.write_json(path, to_dict(config))
        storage.remove_partials(run_dir, recursive=True)
        with run_lock.name_owner(run_dir):
            distributed.barrier()
            yield


def check_same_config(theirs: dict[str, Any], ours: dict[str, Any], subject: str) -> None:
    """Refuse another config, naming the first key that differs."""
    there, here = _flat(theirs), _flat(ours)
    for key in sorted(there.keys() | here.keys(), key=lambda key: (key != "recipe", key)):  # a recipe explains all others
        if (old := there.get(key)) != (new := here.get(key)):
            raise UserError(f"{subject} with {key} = {old}, not {new}; choose another directory")


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, value in tree.items() for k, v in _flat(value, f"{prefix}.{name}" if prefix else name).items()}


def reusable_stages(other: Path, config: BaseRunConfig[Any]) -> int:
    """Count the leading stages that run `other` has finished with the same settings; at least one, or an error."""
    path = RunPaths(other).config
    if not path.is_file():
        raise UserError(f"`reuse` {other} is not a run directory; name one that holds a config.json")
    theirs, ours = to_dict(from_dict(type(config), read_json(path), str(path))), to_dict(config)
    first = REUSABLE_STAGES[:1]
    check_same_config(_stage_inputs(theirs, first), _stage_inputs(ours, first), f"`reuse` {other} was trained")
    if not RunPaths(other).stage_weights(REUSABLE_STAGES[0]).is_file():
        raise UserError(f"`reuse` {other} has not finished its first stage; finish it or choose another run")
    for count in range(1, len(REUSABLE_STAGES)):
        stages = REUSABLE_STAGES[: count + 1]
        is_finished = RunPaths(other).stage_weights(stages[-1]).is_file()
        if not is_finished or _stage_inputs(theirs, stages) != _stage_inputs(ours, stages):
            return count
    return len(REUSABLE_STAGES)


def _stage_inputs(config: dict[str, Any], stages: Sequence[str]) -> dict[str, Any]:
    """Return what the weights after these stages depend on. Extra codes count: they are trained like all others."""
    parts, extra_codes = config["model"], config.get("extra_codes", 0)
    if "autoencoder" in parts:
        longer = {part: {**parts[part], "length": parts[part]["length"] + extra_codes} for part in ("autoencoder", "prior")}
        parts = parts | longer
    model = parts if "prior" in stages else {"autoencoder": parts.get("autoencoder", parts)}  # a VAE is its autoencoder
    return {**{key: config[key] for key in ("seed", "examples", "precision", "compile", *stages)}, "model": model}


def read_config(run_dir: Path) -> RunConfig:
    """Read the config of a run."""
    path = RunPaths(run_dir).config
    return from_dict(RunConfig, read_json(path), str(path))


def record_environment(path: Path, device: torch.device, dataset: Dataset, command: str) -> None:
    """Add this start to environment.json: versions, hardware, commit, command and data; refuse other data than before."""
    starts = _starts(path, dataset, "out") if path.exists() else []
    digest = data_digest(dataset)
    entry = {"command": command, "data": dataset.source, "data_digest": digest, "examples": len(dataset.train)}
    starts.append({**environment(device), **entry})
    storage.write_json(path, {"starts": starts})


def _starts(path: Path, dataset: Dataset, argument: str) -> list[dict[str, Any]]:
    """Return the starts of a run so far; refuse them if they were on other data."""
    starts: list[dict[str, Any]] = read_json(path)["starts"]
    if starts[-1]["data_digest"] != data_digest(dataset):
        theirs = starts[-1]["data"]
        raise UserError(f"{path.parent} was begun on other data ({theirs}), not {dataset.source}; choose another `{argument}`")
    return starts


def data_digest(dataset: Dataset) -> str:
    """Return a digest of a few examples: enough to tell datasets apart, and hashing all of them would take seconds."""
    few = dataset.train[::997]
    train = few.tiles() if isinstance(few, Recordings) else few.clone()
    return storage.digest({"train": train, "validation": dataset.validation[::97].clone()})


def config_identity(config: BaseRunConfig[Any]) -> dict[str, Any]:
    """Return a config as a mapping, without the keys that say how it is computed."""
    return _without_compute(to_dict(config))


def _without_compute(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in COMPUTE_KEYS}


def check_finished_run(run_dir: Path, config: BaseRunConfig[Any], dataset: Dataset) -> dict[str, Any]:
    """Return the last start of a finished run and its precision; refuse a run of another config or on other data."""
    theirs = read_json(RunPaths(run_dir).config)
    check_same_config(_without_compute(theirs), config_identity(config), f"{run_dir} holds a run")
    return {**_starts(RunPaths(run_dir).environment, dataset, "runs_dir")[-1], "precision": theirs["precision"]}
