"""What remains to be trained before an experiment can measure: steps by stage, and minutes if similar runs are known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from anytime.data import Dataset
from anytime.experiments.variants import PlannedRun, stages
from anytime.training import log
from anytime.training.run import training_subset
from anytime.training.run_dir import RunPaths


def eta(runs: Sequence[PlannedRun], dataset: Dataset) -> str:
    """Describe the unfinished runs in one sentence."""
    missing = {run.run_dir.name: run for run in runs if not RunPaths(run.run_dir).finished}
    if not missing:
        return "nothing to train"
    todo = {name: remaining_steps(run, dataset, missing) for name, run in missing.items()}
    texts = [f"{name} ({' + '.join(f'{stage} {n:,}' for stage, n in steps.items())})" for name, steps in todo.items()]
    total = sum(sum(steps.values()) for steps in todo.values())
    summary = f"{len(todo)} run{'s' if len(todo) > 1 else ''} to train, {total:,} steps: {', '.join(texts)}"
    seconds = [(seconds_per_step(missing[name], stage), n) for name, steps in todo.items() for stage, n in steps.items()]
    known = [each * n for each, n in seconds if each is not None]
    about = f"; about {sum(known) / 60:.1f} minutes at the speed of earlier runs" if len(known) == len(seconds) else ""
    return summary + about


def remaining_steps(run: PlannedRun, dataset: Dataset, planned: Collection[str]) -> dict[str, int]:
    """Return the steps of each stage that this run must still do; `planned` runs are trained before it."""
    examples = len(training_subset(dataset, run.config).train)
    done = {line["stage"]: line["epoch"] for line in log.read(RunPaths(run.run_dir).metrics)}
    reused = list[str]()
    if run.reuse is not None and (run.reuse.name in planned or RunPaths(run.reuse).stage_weights("pretrain").is_file()):
        reused = ["pretrain", "ordered"] if run.variant.reuses_codes else ["pretrain"]
    todo = {
        name: (stage.epochs - done.get(name, 0)) * max(1, examples * getattr(stage, "augmentations", 1) // stage.batch)
        for name, stage in stages(run.config).items()
        if name not in reused
    }
    return {name: steps for name, steps in todo.items() if steps > 0}


def seconds_per_step(run: PlannedRun, stage: str) -> float | None:
    """Return the seconds per step of a stage in runs of the same recipe, data and scale; None if there are none."""
    pattern = f"{run.config.model.name}-{run.variant.recipe}-{run.config.scale}-*"
    lines = [line for run_dir in run.run_dir.parent.glob(pattern) for line in log.read(RunPaths(run_dir).metrics)]
    known = [line["seconds"] * line["epoch"] / line["step"] for line in lines if line["stage"] == stage]
    return median(known) if known else None
