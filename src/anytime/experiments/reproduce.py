"""From a name to the numbers, the verdicts and the figure: what `anytime reproduce` does once it knows what is asked for."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anytime.core.errors import UserError
from anytime.core.plots import can_plot
from anytime.core.results import Results, read, results_file
from anytime.experiments import theorem
from anytime.experiments.registry import Experiment, find
from anytime.experiments.runner import ExperimentContext, Runner
from anytime.training.config import Scale

SCALES: tuple[Scale, ...] = ("smoke", "short", "full")
RENAMED_EXPERIMENTS = {"reconstruction": "ordering"}
"""Experiments whose results are kept, and who draws them now."""


@dataclass(frozen=True, slots=True)
class ExperimentOutput:
    """What an experiment leaves behind."""

    results: Results
    path: Path
    figure: Path | None  # None without matplotlib


def check_overwrite(out: Path, experiment: str, dataset: str, scale: Scale) -> None:
    """Refuse to replace results of another version, or of a larger scale, before any work is done."""
    path = results_file(out, experiment, dataset)
    if not path.exists():
        return
    existing_scale = read(path).environment.get("scale")
    if existing_scale in SCALES and SCALES.index(existing_scale) > SCALES.index(scale):
        raise UserError(
            f"{path} holds results of --scale {existing_scale}, which --scale {scale} would replace; choose another --out"
        )


def reproduce(experiment: Experiment, context: ExperimentContext, out: Path) -> ExperimentOutput:
    """Train what is needed, measure, decide, write and draw; `Paused` when the time is over."""
    module = importlib.import_module(experiment.module)
    return write_results(module.compute(Runner(experiment.name, context)), out)


def reproduce_theorem(command: str, out: Path) -> ExperimentOutput:
    """The one experiment without data."""
    return write_results(theorem.compute(command=command), out)


def write_results(results: Results, out: Path) -> ExperimentOutput:
    path = results.write(out)
    return ExperimentOutput(results, path, draw(path) if can_plot() else None)


def draw(path: Path) -> Path:
    """The figure of any results file, beside it."""
    name = read(path).experiment
    figure: Path = importlib.import_module(find(RENAMED_EXPERIMENTS.get(name, name)).module).draw(path)
    return figure


def canonical_command(
    experiment: Experiment, dataset: str, scale: Scale, *, local: bool, samples: int | None, seeds: Sequence[int]
) -> str:
    """The command as a user would type it: what decides the numbers, and no place of this machine.

    >>> canonical_command(find("fid"), "cifar10", "full", local=True, samples=None, seeds=(0, 1))
    'anytime reproduce fid --dataset cifar10 --data DIR --seeds 0,1'
    >>> canonical_command(find("vae"), "cifar10", "short", local=False, samples=None, seeds=(0,))
    'anytime reproduce vae --dataset cifar10 --scale short'
    """
    words = ["anytime", "reproduce", experiment.name]
    if experiment.has_data:
        words += ["--dataset", dataset]
        words += [] if scale == experiment.scale == "full" else ["--scale", scale]
        words += ["--data", "DIR"] if local else []
        words += ["--samples", str(samples)] if samples is not None else []
        words += ["--seeds", ",".join(map(str, seeds))] if len(seeds) > 1 else ["--seed", str(seeds[0])] if seeds[0] else []
    return shlex.join(words)
