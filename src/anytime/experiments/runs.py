"""What an experiment says about the trained runs that it compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from anytime.config import read_json
from anytime.data import Dataset
from anytime.errors import UserError
from anytime.experiments.results import Verdict
from anytime.training.folder import Paths, environment, read_config


def named_runs(texts: Iterable[str]) -> dict[str, Path]:
    """Runs as the command line names them.

    >>> named_runs(["ordered=runs/a"])
    {'ordered': PosixPath('runs/a')}
    """
    runs = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not (name and equals and folder):
            raise UserError(f"--runs {text!r} must look like SERIES=RUN, such as ordered=runs/cifar10-paper")
        runs[name] = Path(folder)
    return runs


def facts(dataset: Dataset, runs: Mapping[str, Path], device: torch.device) -> dict[str, Any]:
    """Versions, hardware and data of the measurement, and the commands of the trainings."""
    part = "test" if dataset.test is not None else "validation"
    commands = {name: read_json(Paths(folder).environment)["starts"][-1]["command"] for name, folder in runs.items()}
    held_out = f"{len(dataset.held_out):,} {part} examples"
    return {**environment(device), "training": commands, "data": dataset.source, "held_out": held_out}


def schedule(runs: Mapping[str, Path]) -> str:
    """How long each run was trained, and on what."""
    return "; ".join(f"{name}: {_schedule(folder)}" for name, folder in runs.items())


def _schedule(folder: Path) -> str:
    config = read_config(folder)
    stages = f"{config.pretrain.epochs} + {config.ordered.epochs} epochs, {type(config.ordered.truncation).__name__.lower()}"
    return f"{stages}, {config.ordered.reduction} reduction, batch {config.ordered.batch}, {config.precision}"


def decided(verdicts: list[Verdict], dataset: Dataset, runs: Mapping[str, Path]) -> list[Verdict]:
    """The verdicts, open where the data is synthetic or a run was of smoke scale: such a run decides nothing."""
    if dataset.synthetic or any(read_config(folder).scale == "smoke" for folder in runs.values()):
        return [replace(verdict, holds=None) for verdict in verdicts]
    return verdicts
