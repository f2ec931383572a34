"""All experiments one after the other: `anytime reproduce --all`. What is measured is cached, so the same call resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anytime.core.errors import UserError, did_you_mean
from anytime.experiments.registry import EXPERIMENTS, Experiment
from anytime.experiments.variants import VARIANTS
from anytime.training.config import Scale
from anytime.training.run_dir import RunPaths


@dataclass(frozen=True, slots=True)
class Job:
    """One experiment on one dataset."""

    experiment: Experiment
    dataset: str
    scale: Scale
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return `fid, cifar10`."""
        return f"{self.experiment.name}, {self.dataset}"

    @property
    def runs(self) -> set[str]:
        """Return the names of the runs that it needs."""
        variants = [VARIANTS[name] for name in self.experiment.runs]
        return {variant.run_name(self.dataset, self.scale, seed) for variant in variants for seed in self.seeds}


def plan_jobs(dataset: str | None, scale: Scale | None, seeds: tuple[int, ...]) -> list[Job]:
    """Return every experiment on every dataset of the paper, or on one of them; at smoke scale on the first alone.

    Experiments that use one seed get the first.
    """
    known = {name for experiment in EXPERIMENTS.values() for name in experiment.datasets}
    if dataset is not None and dataset not in known:
        raise UserError(f"no experiment of the paper uses the `dataset` {dataset}: {did_you_mean(dataset, known)}")
    return [
        Job(experiment, name, scale or experiment.scale, seeds if experiment.multi_seed else seeds[:1])
        for experiment in EXPERIMENTS.values()
        for name in (experiment.datasets[:1] if scale == "smoke" and dataset is None else experiment.datasets)
        if dataset in (None, name)
    ]


class TimeLeft:
    """Estimates the time that jobs need, by what earlier jobs took. The unit of work is a training or a measurement."""

    def __init__(self, jobs: Sequence[Job], runs_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.started = clock, clock()
        counted, self.work = set[str](), list[int]()
        for job in jobs:
            missing = {name for name in job.runs - counted if not RunPaths(runs_dir / name).finished}
            self.work.append(1 + len(missing))
            counted |= missing

    def after(self, done: int) -> float | None:
        """Return the seconds left after the first `done` jobs; None before the first."""
        finished, left = sum(self.work[:done]), sum(self.work[done:])
        return (self.clock() - self.started) / finished * left if finished else None

    def text(self, done: int) -> str:
        """Return the time left in words."""
        seconds = self.after(done)
        if seconds is None:
            return "time left: known after the first experiment"
        return f"time left: about {seconds / 60:.0f} minutes" if seconds >= 90 else f"time left: about {seconds:.0f} s"


def run_jobs(jobs: Sequence[Job], runs_dir: Path, work: Callable[[Job], None], say: Callable[[str], None]) -> None:
    """Do all jobs and say the time left before each; one that is refused does not stop the others, and is named at the end."""
    left, failed = TimeLeft(jobs, runs_dir), list[str]()
    for number, job in enumerate(jobs):
        say(f"\n[{number + 1}/{len(jobs)}] {job.name}; {left.text(number)}")
        try:
            work(job)
        except UserError as error:
            say(f"not done: {error}")
            failed.append(f"{job.name} ({error})")
    if failed:
        what = f"{len(failed)} of {len(jobs)} experiments could not be done: {'; '.join(failed)}"
        raise UserError(f"{what}; mend this and give the same command again, what is done is kept")
    say(f"\nall {len(jobs)} experiments in {left.clock() - left.started:.0f} s")
