"""anytime reproduce [EXPERIMENT | --all]"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.options import Common, option, parse_ints
from anytime.cli.stdout import say
from anytime.core.errors import UserError, did_you_mean
from anytime.core.ranks import read_ranks

if TYPE_CHECKING:
    from anytime.data.dataset import Dataset, Labels
    from anytime.experiments.registry import Experiment
    from anytime.experiments.reproduce import ExperimentOutput

SMOKE_EXAMPLES = 512  # training examples of a smoke run; a quarter as many are held out
EXAMPLES = ("anytime reproduce", "anytime reproduce theorem --scale smoke", "anytime reproduce --all --scale smoke")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime reproduce`."""

    experiment: Annotated[str | None, tyro.conf.Positional, option("EXPERIMENT")] = None
    """A figure, table or theorem of the paper. Without a name: list them."""
    all: Annotated[bool, option()] = False
    """All experiments, on every dataset of the paper or on one; at smoke scale on the first of each."""
    dataset: Annotated[str | None, option("NAME")] = None
    """The dataset; by default the first that the paper shows."""
    scale: Annotated[Literal["smoke", "short", "full"] | None, option("smoke|short|full")] = None
    """smoke: seconds, decides nothing. short (default of Appendix C): 40 + 60 + 20 epochs. full: the paper's epochs."""
    data: Annotated[Path | None, option("DIR")] = None
    """A local copy of the dataset in its published format; with --all a folder of such copies, named by dataset."""
    inception: Annotated[Path | None, option("PATH")] = None
    """The file of the FID network; by default from the cache, or downloaded once."""
    runs_dir: Annotated[Path, option("DIR")] = Path("runs")
    """Where runs are trained and found, and measurements are cached."""
    samples: Annotated[int | None, option("N")] = None
    """Number of samples; by default the paper's, 10,000 for Appendix C, 2,000 for Appendix D, 5,000 for audio."""
    seed: Annotated[int | None, option("S")] = None
    """Seed of training and sampling; by default 0."""
    seeds: Annotated[str | None, option("S,S,…")] = None
    """Several seeds, each trained separately, for a spread."""
    only: Annotated[str | None, option("RUN,RUN,…")] = None
    """Train and measure only these runs of the experiment, to split it over machines; their measurements are cached."""
    cached: Annotated[bool, option()] = False
    """Decide from cached measurements: train and measure nothing, refuse if one is missing."""
    minutes: Annotated[float | None, option("M")] = None
    """Stop at a safe point after about M minutes. The same command resumes."""
    out: Annotated[Path | None, option("DIR")] = None
    """Results go to DIR/EXPERIMENT/NAME.json, with the figure; by default results, at smoke scale results in --runs-dir."""


def run(arguments: Arguments) -> dict[str, Any]:
    """List the experiments, or reproduce one and print its verdicts."""
    from anytime.core.pause import PartMeasured, Paused
    from anytime.experiments.registry import find

    started = time.monotonic()
    if arguments.all:
        return _reproduce_all(arguments, started)
    if arguments.experiment is None:
        return _list()
    experiment = find(arguments.experiment)
    name = _dataset_name(arguments, experiment)
    seeds = _check_arguments(arguments, experiment)
    try:
        output = _reproduce(arguments, experiment, name, seeds, started)
    except Paused as pause:
        elapsed, measured = (time.monotonic() - started) / 60, isinstance(pause, PartMeasured)
        then = "the command without --only decides" if measured else "give the same command again to resume"
        print(f"stopped after {elapsed:.1f} minutes ({pause}); {then}")
        facts = {"finished": False, "measured": measured, "stopped": str(pause)}
        return {"experiment": experiment.name, "dataset": name, **facts}
    return _print_summary(output, time.monotonic() - started)


def _reproduce_all(arguments: Arguments, started: float) -> dict[str, Any]:
    """Reproduce every experiment; one that cannot be done is named and does not stop the others."""
    from anytime.core.pause import Paused
    from anytime.experiments.queue import Job, plan_jobs, run_jobs
    from anytime.experiments.reproduce import check_overwrite

    for flag in ("experiment", "only", "samples"):
        if (value := getattr(arguments, flag)) is not None:
            word = value if flag == "experiment" else f"--{flag} {value}"
            raise UserError(f"--all and {word} do not go together; leave one of them out")
    jobs, summaries = plan_jobs(arguments.dataset, arguments.scale, _seeds(arguments)), list[dict[str, Any]]()
    for job in jobs:
        check_overwrite(_out(arguments, job.scale), job.experiment.name, job.dataset, job.scale)

    def work(job: Job) -> None:
        own, begun = _own_arguments(arguments, job.experiment, job.dataset), time.monotonic()
        _check_arguments(own, job.experiment)
        output = _reproduce(own, job.experiment, job.dataset, job.seeds, started)
        summaries.append(_print_summary(output, time.monotonic() - begun))

    try:
        run_jobs(jobs, arguments.runs_dir, work, lambda text: print(text, flush=True))
    except Paused as pause:
        print(f"stopped ({pause}); give the same command again to resume")
        return {"experiments": summaries, "finished": False, "stopped": str(pause)}
    return {"experiments": summaries, "finished": True, "seconds": time.monotonic() - started}


def _own_arguments(arguments: Arguments, experiment: Experiment, dataset: str) -> Arguments:
    """Return the arguments of one experiment of `--all`."""
    folder = None if arguments.data is None else arguments.data / dataset
    data = folder if folder is not None and folder.exists() and experiment.has_data else None
    seeds = arguments.seeds if experiment.multi_seed else None
    return replace(
        arguments, all=False, experiment=experiment.name, dataset=dataset, data=data, seeds=seeds,
        inception=arguments.inception if experiment.inception else None,
    )  # fmt: skip


def _list() -> dict[str, Any]:
    from anytime.experiments.registry import EXPERIMENTS

    for e in EXPERIMENTS.values():
        print(f"{e.name:<14} {e.figure:<23} {e.summary}")
        print(f"{'':<14} {', '.join(e.datasets):<23} needs {e.needs}")
    print("\nanytime reproduce NAME [--dataset SET] [--scale smoke|short|full]; what a dataset needs: anytime data list")
    keys = ("name", "figure", "summary", "datasets", "needs")
    return {"experiments": [{key: getattr(e, key) for key in keys} for e in EXPERIMENTS.values()]}


def _dataset_name(arguments: Arguments, experiment: Experiment) -> str:
    from anytime.data.registry import DATASETS, find

    name = arguments.dataset or experiment.datasets[0]
    if not experiment.has_data:
        if name not in experiment.datasets or arguments.data is not None:
            raise UserError(f"{experiment.name} needs no dataset; leave --dataset and --data out")
        return name
    shape = find(name, "`dataset`").shape
    if shape is None:
        known = [info.name for info in DATASETS.values() if info.shape is not None]
        raise UserError(f"--dataset {name} has no fixed size to compare at; {did_you_mean(name, known)}")
    if (len(shape) == 2) != experiment.is_audio:
        about = f"{experiment.name} is about {'audio' if experiment.is_audio else 'images'}"
        raise UserError(f"{about}, which {name} does not hold; use --dataset {experiment.datasets[0]}")
    return name


def _check_arguments(arguments: Arguments, experiment: Experiment) -> tuple[int, ...]:
    """Refuse what does not apply to the experiment; return the seeds."""
    seeds = _seeds(arguments)
    if len(seeds) > 1 and not experiment.multi_seed:
        raise UserError(f"{experiment.name} uses one seed; give it with --seed")
    if arguments.samples is not None and (not experiment.takes_samples or arguments.samples < 2):
        why = "must be at least 2" if experiment.takes_samples else f"does not apply to {experiment.name}"
        raise UserError(f"--samples {arguments.samples} {why}; change it or leave it out")
    if arguments.inception is not None and not experiment.inception:
        raise UserError(f"--inception does not apply to {experiment.name}, which measures no FID; leave it out")
    for run in _only(arguments):
        if run not in experiment.runs:
            raise UserError(f"--only {run} is not a run of {experiment.name}; {did_you_mean(run, experiment.runs)}")
    if arguments.only is not None and arguments.cached:
        raise UserError("--only measures and --cached measures nothing; leave one of them out")
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise UserError(f"--minutes must be above 0, not {arguments.minutes:g}")
    if read_ranks().world_size > 1:
        instead = "train with torchrun and `anytime train`, then reproduce reuses the runs"
        raise UserError(f"reproduce runs in one process; {instead}")
    return seeds


def _seeds(arguments: Arguments) -> tuple[int, ...]:
    """Return the seeds that `--seed` or `--seeds` names."""
    if arguments.seed is not None and arguments.seeds is not None:
        raise UserError("--seed and --seeds both set the seed; give one of them")
    if arguments.seeds is None:
        return tuple(parse_ints(str(arguments.seed or 0), "--seed", "0", minimum=0))
    return tuple(dict.fromkeys(parse_ints(arguments.seeds, "--seeds", "0,1", minimum=0)))


def _out(arguments: Arguments, scale: str) -> Path:
    """Return where results go. Those of a smoke run stay with the runs: they mean nothing."""
    return arguments.out or (arguments.runs_dir / "results" if scale == "smoke" else Path("results"))


def _reproduce(
    arguments: Arguments, experiment: Experiment, name: str, seeds: tuple[int, ...], started: float
) -> ExperimentOutput:
    """Check the places and the data before any work, then measure."""
    from anytime.cli.console import TrainingConsole
    from anytime.cli.data import find_dataset
    from anytime.cli.output import check_out_dir
    from anytime.core.device import pick_device
    from anytime.core.pause import NEVER, Pause
    from anytime.core.results import MEASURED
    from anytime.experiments import theorem
    from anytime.experiments.reproduce import canonical_command, check_overwrite, reproduce, write_results
    from anytime.experiments.runner import ExperimentContext
    from anytime.metrics.inception import load_feature_network

    scale, local = arguments.scale or experiment.scale, arguments.data is not None
    out = _out(arguments, scale)
    check_out_dir(out)
    check_out_dir(arguments.runs_dir, "--runs-dir")
    check_overwrite(out, experiment.name, name, scale)
    command = canonical_command(experiment, name, scale, local=local, samples=arguments.samples, seeds=seeds)
    if not experiment.has_data:
        return write_results(theorem.compute(command=command), out)
    device, smoke = pick_device(arguments.device), scale == "smoke"
    dataset = find_dataset(name, arguments.data, None, smoke)
    with TrainingConsole() as console:
        if dataset.synthetic:
            console.say(f"{name} is not available: using {dataset.source}")
        context = ExperimentContext(
            dataset=dataset.subset(SMOKE_EXAMPLES, SMOKE_EXAMPLES // 4) if smoke else dataset,
            scale=scale,
            device=device,
            seeds=seeds,
            samples=arguments.samples,
            only=_only(arguments),
            cached=arguments.cached,
            network=load_feature_network(arguments.inception, smoke, device) if experiment.inception else None,
            labels=_labels(arguments, dataset) if experiment.classifies and not smoke else None,
            runs=arguments.runs_dir,
            kept=out / MEASURED,
            local=local,
            command=command,
            reporter=console,
            pause=NEVER if arguments.minutes is None else Pause(started + 60 * arguments.minutes),
        )
        return reproduce(experiment, context, out)


def _only(arguments: Arguments) -> tuple[str, ...]:
    """Return the runs that `--only` names; none stands for all."""
    return tuple(arguments.only.split(",")) if arguments.only else ()


def _labels(arguments: Arguments, dataset: Dataset) -> Labels | None:
    """Return the labels of the dataset; None if they are not supported."""
    from anytime.data.registry import find, load_labels

    if dataset.synthetic or find(dataset.name).label_reader is None:
        return None
    labels = load_labels(dataset.name, data=arguments.data)
    labels.check(dataset)
    return labels


def _print_summary(output: ExperimentOutput, seconds: float) -> dict[str, Any]:
    from anytime.core.results import HOLDS

    results = output.results
    for verdict in results.verdicts:
        print(f"{HOLDS[verdict.holds]:<13}  {verdict.claim}: {verdict.evidence}")
    no_figure = "no figure: install matplotlib and give the same command again"
    say(f"{seconds:.0f} s: {output.path}  {output.figure or no_figure}")
    return {
        "experiment": results.experiment,
        "dataset": results.dataset,
        "finished": True,
        "results": str(output.path),
        "figure": None if output.figure is None else str(output.figure),
        "verdicts": [asdict(verdict) for verdict in results.verdicts],
        "seconds": seconds,
    }
