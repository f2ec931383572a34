"""Checkpoints: all that a run needs to resume, as one safetensors file with a digest. The last two are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anytime.core.config import from_dict
from anytime.core.errors import UserError
from anytime.core.storage import read_tensors, write_tensors

MAX_CHECKPOINTS = 2
PARTS = ("model", "best", "optimizer", "auxiliary")


@dataclass(frozen=True, slots=True)
class Position:
    """Progress of a run."""

    stage: str
    step: int  # finished steps of this stage
    total_steps: int  # finished steps of all stages; orders the files
    best_loss: float | None  # smallest validation loss of this stage so far


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights, optimizer state and position of a run."""

    position: Position
    model: dict[str, Tensor]
    best: dict[str, Tensor]  # weights of the best epoch of the stage; empty before the first one ends
    optimizer: dict[str, Tensor]
    running_losses: Tensor  # sums of the losses since the epoch began
    auxiliary: dict[str, Tensor] = field(default_factory=dict)  # weights that only this stage needs, such as a discriminator's


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
    """Read the newest intact checkpoint, if there is one; rename damaged ones and report them."""
    for path in reversed(_files(directory)):
        try:
            tensors, metadata, _ = read_tensors(path)
            return _assemble(tensors, metadata)
        except (UserError, KeyError, TypeError) as error:
            aside = path.with_suffix(".damaged")
            _rename(path, aside)
            say(f"checkpoint {path.name} is damaged ({error}); set aside as {aside.name}, going back to the one before it")
    return None


def _rename(path: Path, aside: Path) -> None:
    try:
        path.replace(aside)
    except OSError as error:
        raise UserError(f"{path} is damaged and cannot be renamed ({error.strerror}); remove it") from None


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.safetensors"))


def _assemble(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Checkpoint:
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    for name, tensor in tensors.items():
        part, slash, rest = name.partition("/")
        if slash:
            parts[part][rest] = tensor
    position = from_dict(Position, {key.name: metadata[key.name] for key in fields(Position)}, "its position")
    if not 0 <= position.step <= position.total_steps:
        raise TypeError("its steps are negative or more than all")
    return Checkpoint(position, running_losses=tensors["running_losses"], **parts)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"{index}/{key}": torch.as_tensor(value) for index, slot in state.items() for key, value in slot.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load `optimizer_tensors` into a new optimizer over the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, slot in optimizer.state.items():
        for key, tensor in slot.items():
            if tensor.shape == parameter.shape:  # files drop channels-last strides, which a fused step needs
                slot[key] = torch.empty_like(parameter).copy_(tensor)
