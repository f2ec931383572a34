"""A run's folder: what lies where, held by one process at a time, and which run may take it over."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anytime.core import distributed, storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.data import Dataset
from anytime.data.recordings import Recordings
from anytime.training.config import BaseRunConfig, RunConfig


@dataclass(frozen=True, slots=True)
class RunPaths:
    """What lies where in a run's folder."""

    run_dir: Path

    @property
    def config(self) -> Path:
        return self.run_dir / "config.json"

    @property
    def environment(self) -> Path:
        return self.run_dir / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.run_dir / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.run_dir / "checkpoints"

    @property
    def model(self) -> Path:
        return self.run_dir / "model"

    @property
    def finished(self) -> bool:
        """Whether the model is there; its config is written last."""
        return (self.model / "config.json").is_file()

    def stage_weights(self, stage: str) -> Path:
        """What the end of a stage has made, for runs that begin alike."""
        return self.checkpoints / f"after-{stage}.safetensors"


@contextmanager
def lock_run(run_dir: Path, config: BaseRunConfig) -> Iterator[None]:
    """Hold the run's folder against a second process, with its config written or checked."""
    if not distributed.is_main():
        distributed.barrier()
        yield
        return
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = (run_dir / ".lock").open("w")
    except OSError as error:
        raise UserError(f"{run_dir} cannot be written ({error.strerror}); choose another place with --out") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is training in {run_dir}; wait for it or choose another --out") from None
        _check_config(run_dir / "config.json", config)
        for left in run_dir.rglob(".*.partial"):  # by a process that was killed while it wrote
            left.unlink(missing_ok=True)  # an evaluation may have finished it meanwhile
        distributed.barrier()
        yield


def _check_config(path: Path, config: BaseRunConfig) -> None:
    """Write the config of a new run; refuse one that differs from what is there, naming the key."""
    if not path.exists():
        storage.write_json(path, to_dict(config))
        return
    check_same_config(_recorded_config(path, config), to_dict(config), f"{path.parent} holds a run")


def _recorded_config(path: Path, config: BaseRunConfig) -> dict[str, Any]:
    """The config of another run as one of this kind; of another kind, or edited, it is told by its difference."""
    theirs = read_json(path)
    with suppress(UserError):
        theirs = to_dict(from_dict(type(config), theirs))  # what an older version left out has its default
    return theirs


def check_same_config(theirs: dict[str, Any], ours: dict[str, Any], config_identity: str) -> None:
    there, here = _flat(theirs), _flat(ours)
    for key in sorted(there.keys() | here.keys(), key=lambda key: (key != "recipe", key)):  # another recipe says it all
        if (old := there.get(key)) != (new := here.get(key)):
            raise UserError(f"{config_identity} with {key} = {old}, not {new}; choose another folder")


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, value in tree.items() for k, v in _flat(value, f"{prefix}.{name}" if prefix else name).items()}


def reusable_stages(other: Path, config: BaseRunConfig) -> int:
    """How many leading stages `other` has done just as this run would do them; at least one, or an error."""
    path = RunPaths(other).config
    if not path.is_file():
        raise UserError(f"--share {other} is no run's folder; name one that holds a config.json")
    theirs, ours = to_dict(from_dict(type(config), read_json(path), str(path))), to_dict(config)
    check_same_config(
        _stage_inputs(theirs, REUSABLE_STAGES[:1]), _stage_inputs(ours, REUSABLE_STAGES[:1]), f"--share {other} was trained"
    )
    if not RunPaths(other).stage_weights(REUSABLE_STAGES[0]).is_file():
        raise UserError(f"--share {other} has not finished its first stage; finish it or choose another run")
    count = 1
    while count < len(REUSABLE_STAGES) and RunPaths(other).stage_weights(REUSABLE_STAGES[count]).is_file():
        stages = REUSABLE_STAGES[: count + 1]
        if _stage_inputs(theirs, stages) != _stage_inputs(ours, stages):
            break
        count += 1
    return count


def _stage_inputs(config: dict[str, Any], stages: Sequence[str]) -> dict[str, Any]:
    """What the outcome of these stages depends on; a VAE's model is its autoencoder. Spare codes are codes until the end."""
    parts, extra_codes = config["model"], config.get("extra_codes", 0)
    if "autoencoder" in parts:
        longer = {part: {**parts[part], "length": parts[part]["length"] + extra_codes} for part in ("autoencoder", "prior")}
        parts = parts | longer
    model = parts if "prior" in stages else {"autoencoder": parts.get("autoencoder", parts)}
    return {**{key: config[key] for key in ("seed", "examples", "precision", "compile", *stages)}, "model": model}


def read_config(run_dir: Path) -> RunConfig:
    """The config of a run's folder."""
    return from_dict(RunConfig, read_json(run_dir / "config.json"), str(run_dir / "config.json"))


def record_environment(path: Path, device: torch.device, dataset: Dataset, command: str) -> None:
    """Add this start to environment.json: versions, hardware, commit, command and data; other data than before is refused."""
    starts = _starts(path, dataset, "--out") if path.exists() else []
    digest = data_digest(dataset)
    entry = {"command": command, "data": dataset.source, "data_digest": digest, "examples": len(dataset.train)}
    starts.append({**environment(device), **entry})
    storage.write_json(path, {"starts": starts})


def _starts(path: Path, dataset: Dataset, flag: str) -> list[dict[str, Any]]:
    """The starts of a run so far, which must have been on this data."""
    starts: list[dict[str, Any]] = read_json(path)["starts"]
    if starts[-1]["data_digest"] != data_digest(dataset):
        raise UserError(
            f"{path.parent} was begun on other data ({starts[-1]['data']}), not {dataset.source}; choose another {flag}"
        )
    return starts


def data_digest(dataset: Dataset) -> str:
    """Names the data by a few examples: they tell sets apart, and hashing all of them would cost seconds."""
    few = dataset.train[::997]
    train = few.tiles() if isinstance(few, Recordings) else few.clone()
    return storage.digest({"train": train, "validation": dataset.validation[::97].clone()})


REUSABLE_STAGES = ("pretrain", "ordered", "prior")
"""Stages that another run may take over, in their order."""
COMPUTE_KEYS = ("precision", "compile", "graph", "checkpoint_seconds", "sample_grids")
"""Keys that say how a run is computed, not what: a model is worth the same to others whatever they were."""


def config_identity(config: BaseRunConfig) -> dict[str, Any]:
    """A config without the keys that say how it is computed."""
    return _config_identity(to_dict(config))


def upgrade_config(recorded: dict[str, Any], config: BaseRunConfig) -> dict[str, Any]:
    """What an older version said of a config of this kind, in today's words: what it left out has its default."""
    with suppress(UserError):
        return config_identity(from_dict(type(config), recorded))
    return recorded


def _config_identity(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in COMPUTE_KEYS}


def check_finished_run(run_dir: Path, config: BaseRunConfig, dataset: Dataset) -> dict[str, Any]:
    """How a finished run was last started, and in which precision; one of another config or of other data is refused."""
    theirs = _recorded_config(RunPaths(run_dir).config, config)
    check_same_config(_config_identity(theirs), config_identity(config), f"{run_dir} holds a run")
    return {**_starts(RunPaths(run_dir).environment, dataset, "--runs-dir")[-1], "precision": theirs["precision"]}
