"""anytime reproduce [EXPERIMENT]"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.options import Common
from anytime.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from anytime.data import Dataset
    from anytime.experiments.registry import Experiment
    from anytime.experiments.reproduce import ExperimentOutput
    from anytime.training.config import Scale

SMOKE_EXAMPLES = 512  # training pictures that a smoke run looks at, and a quarter as many held out

EXAMPLES = ("anytime reproduce", "anytime reproduce theorem --scale smoke")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    experiment: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")] = None
    """One of the paper's figures or theorems; without a name, the list."""
    dataset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """By default the first that the paper shows."""
    scale: Literal["smoke", "short", "full"] | None = None
    """smoke: seconds, decides nothing; short (appendix C and D): 40 + 60 + 20 epochs; full (the others): the paper's."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """A local copy of the set in its published format."""
    inception: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """The FID network's file; by default from the cache, or downloaded once."""
    runs_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Where runs are trained, found and taken over, and where measurements are kept."""
    samples: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Samples behind each number; by default the paper's, 10,000 for appendix C, 5,000 of sounds."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="S")] = None
    """Of training and sampling, by default 0."""
    seeds: Annotated[str | None, tyro.conf.arg(metavar="S,S,…")] = None
    """Several seeds, each trained on its own, for a spread."""
    minutes: Annotated[float | None, tyro.conf.arg(metavar="M")] = None
    """Stop at a safe point after about so many minutes; the same command again goes on."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Results go to DIR/EXPERIMENT/NAME.json, the figure beside them."""


def run(arguments: Arguments) -> dict[str, Any]:
    from anytime.experiments.registry import find

    started = time.monotonic()
    if arguments.experiment is None:
        return _list()
    experiment = find(arguments.experiment)
    scale = arguments.scale or experiment.scale
    name, seeds = _dataset_name(arguments, experiment), _seeds(arguments, experiment)
    _check_arguments(arguments, experiment)
    from anytime.cli.output import check_out_dir
    from anytime.core.pause import Paused
    from anytime.experiments.reproduce import canonical_command, check_overwrite

    check_out_dir(arguments.out)
    check_out_dir(arguments.runs_dir, "--runs-dir")
    check_overwrite(arguments.out, experiment.name, name, scale)
    local = arguments.data is not None
    command = canonical_command(experiment, name, scale, local=local, samples=arguments.samples, seeds=seeds)
    try:
        output = _reproduce(arguments, experiment, name, scale, seeds, command, started)
    except Paused as pause:
        elapsed = (time.monotonic() - started) / 60
        print(f"stopped after {elapsed:.1f} minutes ({pause}); give the same command again to go on")
        return {"experiment": experiment.name, "dataset": name, "finished": False, "stopped": str(pause)}
    return _print_summary(output, time.monotonic() - started)


def _list() -> dict[str, Any]:
    from anytime.experiments.registry import EXPERIMENTS

    for e in EXPERIMENTS.values():
        print(f"{e.name:<14} {e.figure:<23} {e.summary}")
        print(f"{'':<14} {', '.join(e.datasets):<23} needs {e.needs}")
    print("\nanytime reproduce NAME [--dataset SET] [--scale smoke|short|full]; what a set needs: anytime data list")
    keys = ("name", "figure", "summary", "datasets", "needs")
    return {"experiments": [{key: getattr(e, key) for key in keys} for e in EXPERIMENTS.values()]}


def _dataset_name(arguments: Arguments, experiment: Experiment) -> str:
    from anytime.data.registry import DATASETS, find

    name = arguments.dataset or experiment.datasets[0]
    if not experiment.has_data:
        if name not in experiment.datasets or arguments.data is not None:
            raise UserError(f"{experiment.name} has a small world of its own; leave --dataset and --data out")
        return name
    if find(name).shape is None:
        known = [info.name for info in DATASETS.values() if info.shape is not None]
        raise UserError(f"--dataset {name} has no size of its own to compare at; {did_you_mean(name, known)}")
    if (len(find(name).shape or ()) == 2) != experiment.is_audio:
        modality = "audio" if experiment.is_audio else "images"
        raise UserError(
            f"{experiment.name} is about {modality}, which {name} does not hold; use --dataset {experiment.datasets[0]}"
        )
    return name


def _seeds(arguments: Arguments, experiment: Experiment) -> tuple[int, ...]:
    if arguments.seeds is None:
        seeds: tuple[int, ...] = (arguments.seed or 0,)
    elif arguments.seed is not None:
        raise UserError("--seed and --seeds say the same thing twice; give one of them")
    else:
        try:
            seeds = tuple(dict.fromkeys(int(part) for part in arguments.seeds.split(",")))
        except ValueError:
            raise UserError(f"--seeds {arguments.seeds!r} must be whole numbers with commas between, such as 0,1") from None
    if not all(0 <= seed < 1 << 63 for seed in seeds):
        raise UserError(f"a seed must be between 0 and 2^63 - 1, not {min(seeds)}; change --seed or --seeds")
    if len(seeds) > 1 and not experiment.multi_seed:
        raise UserError(f"{experiment.name} is made with one seed; give it with --seed")
    return seeds


def _check_arguments(arguments: Arguments, experiment: Experiment) -> None:
    """What does not go together."""
    if arguments.samples is not None and (not experiment.takes_samples or arguments.samples < 2):
        why = "must be at least 2" if experiment.takes_samples else f"is not for {experiment.name}, which counts otherwise"
        raise UserError(f"--samples {arguments.samples} {why}; change it or leave it out")
    if arguments.inception is not None and not experiment.inception:
        raise UserError(f"--inception is not for {experiment.name}, which measures no FID; leave it out")
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise UserError(f"--minutes must be above 0, not {arguments.minutes:g}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("reproduce runs in one process; train with torchrun by `anytime train` and let it take over the runs")


def _reproduce(
    arguments: Arguments,
    experiment: Experiment,
    name: str,
    scale: Scale,
    seeds: tuple[int, ...],
    command: str,
    started: float,
) -> ExperimentOutput:
    from anytime.cli.console import TrainingConsole
    from anytime.core.device import pick_device
    from anytime.core.pause import NEVER, Pause
    from anytime.experiments.reproduce import reproduce, reproduce_theorem
    from anytime.experiments.runner import ExperimentContext
    from anytime.metrics.inception import load_feature_network

    if not experiment.has_data:
        return reproduce_theorem(command, arguments.out)
    device = pick_device(arguments.device)
    dataset = _dataset(name, arguments.data, scale)
    with TrainingConsole() as console:
        if dataset.synthetic:
            console.say(f"{name} is not here: working with {dataset.source}")
        context = ExperimentContext(
            dataset=dataset,
            scale=scale,
            device=device,
            seeds=seeds,
            samples=arguments.samples,
            network=load_feature_network(arguments.inception, scale == "smoke", device) if experiment.inception else None,
            runs=arguments.runs_dir,
            local=arguments.data is not None,
            command=command,
            reporter=console,
            pause=NEVER if arguments.minutes is None else Pause(started + 60 * arguments.minutes),
        )
        return reproduce(experiment, context, arguments.out)


def _dataset(name: str, data: Path | None, scale: Scale) -> Dataset:
    from anytime.cli.datasets import find_dataset

    smoke = scale == "smoke"
    dataset = find_dataset(name, data, None, smoke)
    return dataset.subset(SMOKE_EXAMPLES, SMOKE_EXAMPLES // 4) if smoke else dataset


def _print_summary(output: ExperimentOutput, seconds: float) -> dict[str, Any]:
    from anytime.core.results import HOLDS

    results = output.results
    for verdict in results.verdicts:
        print(f"{HOLDS[verdict.holds]:<13}  {verdict.claim}: {verdict.evidence}")
    figure_text = output.figure or "no figure without matplotlib (the extra `plots`); `make docs` draws it later"
    print(f"{seconds:.0f} s: {output.path}  {figure_text}")
    return {
        "experiment": results.experiment,
        "dataset": results.dataset,
        "finished": True,
        "results": str(output.path),
        "figure": None if output.figure is None else str(output.figure),
        "verdicts": [asdict(verdict) for verdict in results.verdicts],
        "seconds": seconds,
    }
