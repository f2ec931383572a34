"""What there is to train before an experiment can measure: steps by stage, and minutes where runs alike tell the pace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from anytime.data import Dataset
from anytime.experiments.runs import Plan, stages
from anytime.experiments.variants import KINDS
from anytime.training import log
from anytime.training.run import used
from anytime.training.run_dir import Paths


def forecast(runs: Sequence[Plan], dataset: Dataset) -> str:
    """One sentence about those that are not finished."""
    missing = {run.folder.name: run for run in runs if not Paths(run.folder).finished}
    if not missing:
        return "nothing to train"
    todo = {name: steps_to_do(run, dataset, missing) for name, run in missing.items()}
    texts = [f"{name} ({' + '.join(f'{stage} {n:,}' for stage, n in steps.items())})" for name, steps in todo.items()]
    total = sum(sum(steps.values()) for steps in todo.values())
    told = f"{len(todo)} run{'s' if len(todo) > 1 else ''} to train, {total:,} steps: {', '.join(texts)}"
    seconds = [(pace(missing[name], stage), n) for name, steps in todo.items() for stage, n in steps.items()]
    known = [each * n for each, n in seconds if each is not None]
    return f"{told}; about {sum(known) / 60:.1f} minutes, as runs here went" if len(known) == len(seconds) else told


def steps_to_do(run: Plan, dataset: Dataset, planned: Collection[str]) -> dict[str, int]:
    """Steps of each stage that neither this run has done nor another one does for it."""
    examples = len(used(dataset, run.config).train)
    done = {line["stage"]: line["epoch"] for line in log.read(Paths(run.folder).metrics)}
    shared = _shared(run, planned)
    todo = {
        name: (stage.epochs - done.get(name, 0)) * max(1, examples * getattr(stage, "views", 1) // stage.batch)
        for name, stage in stages(run.config).items()
        if name not in shared
    }
    return {name: steps for name, steps in todo.items() if steps > 0}


def _shared(run: Plan, planned: Collection[str]) -> tuple[str, ...]:
    """Stages that are taken over from a run that is there, or is trained before this one."""
    if run.share is None or not (run.share.name in planned or Paths(run.share).after("pretrain").is_file()):
        return ()
    return ("pretrain", "ordered") if KINDS[run.kind].codes else ("pretrain",)


def pace(run: Plan, stage: str) -> float | None:
    """Seconds a step of a stage, by the runs of the same recipe, data and scale that lie beside this one."""
    like = f"{run.config.model.name}-{KINDS[run.kind].recipe}-{run.config.scale}-*"
    lines = [line for folder in run.folder.parent.glob(like) for line in log.read(Paths(folder).metrics)]
    known = [line["seconds"] * line["epoch"] / line["step"] for line in lines if line["stage"] == stage]
    return median(known) if known else None
