"""Checkpoints: everything a run needs to go on, as one safetensors file with a digest. The last two are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anytime.core.storage import DamagedFileError, read_tensors, write_tensors

MAX_CHECKPOINTS = 2
PARTS = ("model", "best", "optimizer", "auxiliary")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run stands."""

    stage: str
    step: int  # steps of this stage that are done
    total_steps: int  # steps of all stages that are done: orders the files
    metrics_bytes: int  # size of metrics.jsonl at this moment
    best_loss: float | None  # smallest validation loss of this stage so far


@dataclass(frozen=True, slots=True)
class Checkpoint:
    position: Position
    model: dict[str, Tensor]
    best: dict[str, Tensor]  # weights of the stage's module at its smallest validation loss; empty before the first epoch's end
    optimizer: dict[str, Tensor]
    running_losses: Tensor  # sums of the losses since the epoch began
    auxiliary: dict[str, Tensor] = field(default_factory=dict)  # weights of what is trained beside the module


def write(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, then remove all but the last two."""
    tensors = {"running_losses": checkpoint.running_losses}
    for part in PARTS:
        tensors |= {f"{part}/{name}": tensor for name, tensor in getattr(checkpoint, part).items()}
    path = directory / f"step-{checkpoint.position.total_steps:09d}.safetensors"
    write_tensors(path, tensors, asdict(checkpoint.position))
    for old in _files(directory)[:-MAX_CHECKPOINTS]:
        old.unlink()
    return path


def read_latest(directory: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint, or None; a damaged one is set aside, and that is said."""
    for path in reversed(_files(directory)):
        try:
            tensors, metadata, _ = read_tensors(path)
            return _assemble(tensors, metadata)
        except (DamagedFileError, KeyError, TypeError) as error:
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            say(f"checkpoint {path.name} is damaged ({error}); set aside as {aside.name}, going back to the one before it")
    return None


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.safetensors"))


def _assemble(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Checkpoint:
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    for name, tensor in tensors.items():
        part, slash, rest = name.partition("/")
        if slash:
            parts[part][rest] = tensor
    return Checkpoint(Position(**metadata), running_losses=tensors["running_losses"], **parts)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"{index}/{key}": torch.as_tensor(value) for index, slot in state.items() for key, value in slot.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put `optimizer_tensors` back into a fresh optimiser over the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split("/")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, slot in optimizer.state.items():
        for key, tensor in slot.items():
            if tensor.shape == parameter.shape:  # a file knows no channels-last; a fused step asks for the weights' own strides
                slot[key] = torch.empty_like(parameter).copy_(tensor)
