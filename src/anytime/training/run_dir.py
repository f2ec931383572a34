"""The run directory: its layout, its lock, and which other run may reuse its stages."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any

import torch
from torch import Tensor

from anytime.core import distributed, storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.environment import training_environment
from anytime.core.errors import UserError
from anytime.data import Dataset
from anytime.data.image_shards import ImageShards
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

    @property
    def last_prior(self) -> Path:
        """Weights of the prior after its last epoch; the model has those with the smallest validation loss."""
        return self.checkpoints / "last-prior.safetensors"


REUSABLE_STAGES = ("pretrain", "ordered", "prior")
"""Stages that another run may reuse, in order."""
START_KEYS: dict[str, type | UnionType] = {
    **dict.fromkeys(("command", "data", "data_digest", "hardware", "anytime", "torch", "date"), str),
    "commit": str | None,
    "examples": int,
}
"""What an environment.json records of every start, with its type."""
SHARED_SECONDS = 30.0
SHARED_ADVICE = "put `out` on a file system that all machines share"
COMPUTE_KEYS = ("precision", "compile", "graph", "checkpoint_seconds", "sample_grids")
"""Config keys that say how a run is computed, not what it trains."""


@contextmanager
def lock_run(run_dir: Path, config: BaseRunConfig[Any]) -> Iterator[None]:
    """Lock the run directory against a second process; write the config of a new run, check that of an old one."""
    if not distributed.is_main():
        distributed.barrier()
        _await_shared(RunPaths(run_dir).config)
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


def _await_shared(path: Path) -> None:
    """Wait for a file of rank 0; a network file system shows it a few seconds late."""
    deadline = time.monotonic() + SHARED_SECONDS
    while not path.is_file():
        if time.monotonic() > deadline:
            where = f"rank {distributed.rank()} on {platform.node()} does not see the files of rank 0 in {path.parent}"
            raise UserError(f"{where}; {SHARED_ADVICE}")
        time.sleep(0.1)


def check_same_run(config: BaseRunConfig[Any], dataset: Dataset, device: torch.device) -> None:
    """Refuse ranks that were started with another config or on other data."""
    if distributed.world_size() > 1:
        for text, what in ((json.dumps(to_dict(config)), "command"), (data_digest(dataset), "data")):
            sentence = f"the ranks were started with a different {what}; start all of them with the same {what} and software"
            distributed.check_same(text, device, sentence)


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


def is_smoke(run_dir: Path) -> bool:
    """Return whether a directory holds a run of smoke scale."""
    path = RunPaths(run_dir).config
    return path.is_file() and read_json(path).get("scale") == "smoke"


def record_environment(path: Path, device: torch.device, dataset: Dataset, command: str) -> None:
    """Add this start to environment.json; refuse other data than before. A finished run has no further starts."""
    starts = _starts(path, dataset, "out") if path.exists() else []
    if starts and RunPaths(path.parent).finished:
        return
    entry = {
        "command": command,
        "data": dataset.source,
        "data_digest": data_digest(dataset),
        "data_sha256": data_sha256(dataset),
        "examples": len(dataset.train),
    }
    starts.append({**training_environment(device), **entry})
    storage.write_json(path, {"starts": starts})


def _starts(path: Path, dataset: Dataset, argument: str) -> list[dict[str, Any]]:
    """Return the starts of a run so far; refuse them if they were on other data."""
    starts = read_starts(path)
    if starts[-1]["data_digest"] != data_digest(dataset):
        theirs = starts[-1]["data"]
        raise UserError(f"{path.parent} was begun on other data ({theirs}), not {dataset.source}; choose another `{argument}`")
    return starts


def read_starts(path: Path) -> list[dict[str, Any]]:
    """Read the starts in an environment.json, of which there is at least one."""
    starts = read_json(path).get("starts")
    if not isinstance(starts, list) or not starts or not all(isinstance(start, dict) for start in starts):
        raise UserError(f"{path} does not list the starts of a run; restore it from where it came from")
    for key, kind in START_KEYS.items():
        if not isinstance(found := starts[-1].get(key), kind):
            raise UserError(f"{path} has the {key} {found!r} in its last start; restore it from where it came from")
    return starts


def data_digest(dataset: Dataset) -> str:
    """Return a digest of a few examples: enough to tell datasets apart, and hashing all of them would take seconds."""
    if isinstance(dataset.train, ImageShards):
        return shards_digest(dataset.train, dataset.validation)
    few = dataset.train[::997]
    train = few.tiles() if isinstance(few, Recordings) else few.clone()
    return storage.digest({"train": train, "validation": dataset.validation[::97].clone()})


def data_sha256(dataset: Dataset) -> str | None:
    """Return a digest of every example, 2 s for each GB; None for shards, whose `data_digest` names every image's place."""
    train = dataset.train
    if isinstance(train, ImageShards):
        return None
    parts = (
        {"train": train}
        if isinstance(train, Tensor)
        else {"train": train.samples, "starts": train.starts, "lengths": train.lengths}
    )
    return storage.digest({**parts, "validation": dataset.validation})


def shards_digest(images: ImageShards, validation: Tensor) -> str:
    """Return a digest of where all images lie in their shards, of a thousand of them, and of the validation images."""
    places = torch.from_numpy(images.index.table[images.rows.numpy()])
    few = images[:: max(1, len(images) // 1000)].load()
    return storage.digest({"places": places, "train": few, "validation": validation[::97].clone()})


def config_identity(config: BaseRunConfig[Any]) -> dict[str, Any]:
    """Return a config as a mapping, without the keys that say how it is computed."""
    return _without_compute(to_dict(config))


def _without_compute(config: dict[str, Any]) -> dict[str, Any]:
    model = config["model"]
    if model.get("prior", {}).get("dropout") == 0:  # configs of PixelCNNs from before it had dropout lack the key
        prior = {key: value for key, value in model["prior"].items() if key != "dropout"}
        config = {**config, "model": {**model, "prior": prior}}
    return {key: value for key, value in config.items() if key not in COMPUTE_KEYS}


def check_finished_run(run_dir: Path, config: BaseRunConfig[Any], dataset: Dataset) -> dict[str, Any]:
    """Return the last start of a finished run and its precision; refuse a run of another config or on other data."""
    theirs = read_json(RunPaths(run_dir).config)
    check_same_config(_without_compute(theirs), config_identity(config), f"{run_dir} holds a run")
    start = _starts(RunPaths(run_dir).environment, dataset, "runs_dir")[-1]
    return {**start, "precision": str(theirs.get("precision"))}
