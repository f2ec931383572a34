"""What there is to train before an experiment can measure: steps by stage, and minutes where runs alike tell the pace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from anytime.data import Dataset
from anytime.experiments.runs import PlannedRun, stages
from anytime.experiments.variants import VARIANTS
from anytime.training import log
from anytime.training.run import training_subset
from anytime.training.run_dir import RunPaths


def eta(runs: Sequence[PlannedRun], dataset: Dataset) -> str:
    """One sentence about those that are not finished."""
    missing = {run.run_dir.name: run for run in runs if not RunPaths(run.run_dir).finished}
    if not missing:
        return "nothing to train"
    todo = {name: remaining_steps(run, dataset, missing) for name, run in missing.items()}
    texts = [f"{name} ({' + '.join(f'{stage} {n:,}' for stage, n in steps.items())})" for name, steps in todo.items()]
    total = sum(sum(steps.values()) for steps in todo.values())
    summary = f"{len(todo)} run{'s' if len(todo) > 1 else ''} to train, {total:,} steps: {', '.join(texts)}"
    seconds = [(seconds_per_step(missing[name], stage), n) for name, steps in todo.items() for stage, n in steps.items()]
    known = [each * n for each, n in seconds if each is not None]
    return f"{summary}; about {sum(known) / 60:.1f} minutes, as runs here went" if len(known) == len(seconds) else summary


def remaining_steps(run: PlannedRun, dataset: Dataset, planned: Collection[str]) -> dict[str, int]:
    """Steps of each stage that neither this run has done nor another one does for it."""
    examples = len(training_subset(dataset, run.config).train)
    done = {line["stage"]: line["epoch"] for line in log.read(RunPaths(run.run_dir).metrics)}
    shared = _reused_stages(run, planned)
    todo = {
        name: (stage.epochs - done.get(name, 0)) * max(1, examples * getattr(stage, "augmentations", 1) // stage.batch)
        for name, stage in stages(run.config).items()
        if name not in shared
    }
    return {name: steps for name, steps in todo.items() if steps > 0}


def _reused_stages(run: PlannedRun, planned: Collection[str]) -> tuple[str, ...]:
    """Stages that are taken over from a run that is there, or is trained before this one."""
    if run.reuse is None or not (run.reuse.name in planned or RunPaths(run.reuse).stage_weights("pretrain").is_file()):
        return ()
    return ("pretrain", "ordered") if VARIANTS[run.variant].codes else ("pretrain",)


def seconds_per_step(run: PlannedRun, stage: str) -> float | None:
    """Seconds a step of a stage, by the runs of the same recipe, data and scale that lie beside this one."""
    pattern = f"{run.config.model.name}-{VARIANTS[run.variant].recipe}-{run.config.scale}-*"
    lines = [line for run_dir in run.run_dir.parent.glob(pattern) for line in log.read(RunPaths(run_dir).metrics)]
    known = [line["seconds"] * line["epoch"] / line["step"] for line in lines if line["stage"] == stage]
    return median(known) if known else None
