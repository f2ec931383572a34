"""`anytime reproduce --all`: every experiment and dataset of the paper, the time left, and what happens to one that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from anytime.core.errors import UserError
from anytime.core.pause import Paused
from anytime.experiments.queue import Job, TimeLeft, plan_jobs, run_jobs
from anytime.experiments.registry import EXPERIMENTS


def test_every_experiment_on_every_dataset_of_the_paper() -> None:
    jobs = plan_jobs(None, None, (0, 1))
    assert [(job.experiment.name, job.dataset) for job in jobs] == [
        (experiment.name, dataset) for experiment in EXPERIMENTS.values() for dataset in experiment.datasets
    ]
    assert {job.experiment.name: job.scale for job in jobs}["vae"] == "short"
    assert {job.experiment.name: job.seeds for job in jobs}["samples"] == (0,), "it uses one seed"
    assert {job.experiment.name: job.seeds for job in jobs}["fid"] == (0, 1)


def test_one_dataset_or_the_first_at_smoke_scale() -> None:
    assert {job.dataset for job in plan_jobs("celeba", None, (0,))} == {"celeba"}
    assert len(plan_jobs("celeba", None, (0,))) == sum("celeba" in e.datasets for e in EXPERIMENTS.values())
    smoke = plan_jobs(None, "smoke", (0,))
    assert [job.dataset for job in smoke] == [experiment.datasets[0] for experiment in EXPERIMENTS.values()]
    with pytest.raises(UserError, match=r"no experiment of the paper uses the `dataset` cifar: .*cifar10"):
        plan_jobs("cifar", None, (0,))


def jobs_of(*names: str) -> list[Job]:
    return [Job(EXPERIMENTS[name], "cifar10", "short", (0,)) for name in names]


def test_time_left_counts_every_run_once(tmp_path: Path) -> None:
    now = [100.0]
    left = TimeLeft(jobs_of("ordering", "fid", "speed"), tmp_path, lambda: now[0])
    assert left.work == [3, 2, 1], "two runs, one more, none; and a measurement each"
    assert left.text(0) == "time left: known after the first experiment"
    now[0] += 300.0
    assert left.after(1) == 300.0
    assert left.text(1) == "time left: about 5 minutes"
    assert left.after(3) == 0.0


def test_finished_runs_take_no_time(tmp_path: Path) -> None:
    done = tmp_path / "cifar10-paper-short-ordered-0" / "model"
    done.mkdir(parents=True)
    (done / "config.json").write_text("{}")
    assert TimeLeft(jobs_of("ordering"), tmp_path).work == [2]


def test_one_that_is_refused_does_not_stop_the_others(tmp_path: Path) -> None:
    done, said = list[str](), list[str]()

    def work(job: Job) -> None:
        if job.experiment.name == "fid":
            raise UserError("the data is missing")
        done.append(job.experiment.name)

    with pytest.raises(
        UserError, match=r"1 of 3 experiments could not be done: fid, cifar10 \(the data is missing\); mend this"
    ):
        run_jobs(jobs_of("ordering", "fid", "speed"), tmp_path, work, said.append)
    assert done == ["ordering", "speed"]
    assert [line.split(";")[0] for line in said if "[" in line] == [
        f"\n[{n}/3] {name}, cifar10" for n, name in enumerate(("ordering", "fid", "speed"), 1)
    ]


def test_a_pause_stops_the_queue(tmp_path: Path) -> None:
    def work(job: Job) -> None:
        raise Paused("the time is over")

    with pytest.raises(Paused):
        run_jobs(jobs_of("ordering"), tmp_path, work, print)
