"""What `anytime reproduce` does: measure, decide, write and draw one experiment."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.plots import can_plot, plot_png
from anytime.core.results import Results, read, results_file
from anytime.core.storage import write_atomic
from anytime.experiments.registry import Experiment, find
from anytime.experiments.runner import ExperimentContext, Runner
from anytime.training.config import Scale

SCALES: tuple[Scale, ...] = ("smoke", "short", "full")


@dataclass(frozen=True, slots=True)
class ExperimentOutput:
    """The results of an experiment and its files."""

    results: Results
    path: Path
    figure: Path | None  # None without matplotlib


def check_overwrite(out: Path, experiment: str, dataset: str, scale: Scale) -> None:
    """Refuse to replace results of another version or of a larger scale, before any work is done."""
    path = results_file(out, experiment, dataset)
    existing = read(path).environment.get("scale") if path.exists() else None
    if existing in SCALES and SCALES.index(existing) > SCALES.index(scale):
        held = f"{path} holds results of `scale` {existing}"
        raise UserError(f"{held}, which `scale` {scale} would replace; choose another `out`")


def reproduce(experiment: Experiment, context: ExperimentContext, out: Path) -> ExperimentOutput:
    """Train what is needed, measure, decide, write and draw. Raises `Paused` when the time is over."""
    module, runner = importlib.import_module(experiment.module), Runner(experiment.name, context)
    if str(environment(context.device)["commit"]).endswith("-dirty") and not context.smoke:
        context.reporter.say("warning: the code has uncommitted changes, so nobody can repeat these numbers; commit it first")
    rows = module.measure(runner)
    return write_results(runner.results(rows, module.decide(rows)), out)


def write_results(results: Results, out: Path) -> ExperimentOutput:
    """Write the results file and, with matplotlib, the figure beside it."""
    path = results.write(out)
    return ExperimentOutput(results, path, _write_figure(results, path) if can_plot() else None)


def draw(path: Path) -> Path:
    """Draw the figure of a results file again, beside it."""
    results = read(path)
    if find(results.experiment).shows_images:
        raise UserError(f"the figure of {path} shows images, which the file does not hold; run again: {results.command}")
    return _write_figure(results, path)


def _write_figure(results: Results, path: Path) -> Path:
    figure = importlib.import_module(find(results.experiment).module).draw(results)
    target = path.with_suffix(".png")
    write_atomic(target, plot_png(figure))
    return target


def canonical_command(
    experiment: Experiment, dataset: str, scale: Scale, *, local: bool, samples: int | None, seeds: Sequence[int]
) -> str:
    """Return the command with every option that affects the numbers, and without local paths.

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
