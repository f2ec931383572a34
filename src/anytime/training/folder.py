"""A run's folder: what lies where, held by one process at a time, and which run may take it over."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anytime import __version__, collective, storage
from anytime.config import from_dict, read_json, to_dict
from anytime.data import Dataset
from anytime.data.recordings import Recordings
from anytime.errors import UserError
from anytime.training import distributed
from anytime.training.recipes import RunConfig


@dataclass(frozen=True, slots=True)
class Paths:
    """What lies where in a run's folder."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config.json"

    @property
    def environment(self) -> Path:
        return self.folder / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def after(self, stage: str) -> Path:
        """The autoencoder at the end of a stage, for runs that share it."""
        return self.checkpoints / f"after-{stage}.safetensors"


@contextmanager
def locked(folder: Path, config: RunConfig) -> Iterator[None]:
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
        for left in folder.rglob(".*.partial"):  # by a process that was killed while it wrote
            left.unlink()
        distributed.barrier()
        yield


def _agree(path: Path, config: RunConfig) -> None:
    """Write the config of a new run; refuse one that differs from what is there, naming the key."""
    if not path.exists():
        storage.write_json(path, to_dict(config))
        return
    theirs = read_json(path)
    with suppress(UserError):  # what an older version left out has its default; an edited file is told by its difference
        theirs = to_dict(from_dict(RunConfig, theirs))
    refuse_difference(theirs, to_dict(config), f"{path.parent} holds a run")


def refuse_difference(theirs: dict[str, Any], ours: dict[str, Any], what: str) -> None:
    there, here = _flat(theirs), _flat(ours)
    for key in sorted(there.keys() | here.keys()):
        if (old := there.get(key)) != (new := here.get(key)):
            raise UserError(f"{what} with {key} = {old}, not {new}; choose another folder")


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, value in tree.items() for k, v in _flat(value, f"{prefix}.{name}" if prefix else name).items()}


def shared_stages(other: Path, config: RunConfig) -> int:
    """How many leading stages of the autoencoder `other` has done just as this run would do them; at least one, or an error."""
    if not Paths(other).config.is_file():
        raise UserError(f"--share {other} is no run's folder; name one that holds a config.json")
    theirs, ours = to_dict(read_config(other)), to_dict(config)
    for whole in (theirs, ours):
        whole["model"] = {"autoencoder": whole["model"]["autoencoder"]}
    common = ("seed", "examples", "precision", "compile", "model")
    first, second = ({key: ours[key] for key in (*common, *stages)} for stages in (("pretrain",), ("pretrain", "ordered")))
    refuse_difference({key: theirs[key] for key in first}, first, f"--share {other} was trained")
    if not Paths(other).after("pretrain").is_file():
        raise UserError(f"--share {other} has not finished its first stage; finish it or choose another run")
    return 2 if all(theirs[key] == second[key] for key in second) and Paths(other).after("ordered").is_file() else 1


def read_config(folder: Path) -> RunConfig:
    """The config of a run's folder."""
    return from_dict(RunConfig, read_json(folder / "config.json"), str(folder / "config.json"))


def record(path: Path, device: torch.device, dataset: Dataset, command: str) -> None:
    """Add this start to environment.json: versions, hardware, commit, command and data; other data than before is refused."""
    starts = read_json(path)["starts"] if path.exists() else []
    # A few examples tell sets apart; hashing all of them would cost seconds.
    train = dataset.train[::997]
    some = train.tiles() if isinstance(train, Recordings) else train.clone()
    few = storage.digest({"train": some, "validation": dataset.validation[::97].clone()})
    if starts and starts[-1]["data_digest"] != few:
        raise UserError(
            f"{path.parent} was begun on other data ({starts[-1]['data']}), not {dataset.source}; choose another --out"
        )
    facts = {"command": command, "data": dataset.source, "data_digest": few, "examples": len(dataset.train)}
    starts.append({**environment(device), **facts})
    storage.write_json(path, {"starts": starts})


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware and commit, for files that hold numbers."""
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {
        "anytime": __version__,
        "commit": _commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
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
