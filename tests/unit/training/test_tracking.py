"""Experiment trackers, as stand-in modules that record their calls."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from anytime import data
from anytime.cli import main
from anytime.core.errors import UserError
from anytime.core.progress import SilentReporter
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training import tracking
from anytime.training.log import MetricsLog, read
from anytime.training.loop import EpochMetrics
from anytime.training.run import train
from anytime.training.tracking import Tracking, check_tracker

STAND_IN = """
calls, fail = [], {}

class Run:
    def log(self, metrics, step):
        calls.append(("log", metrics, step))
        if "log" in fail:
            raise ConnectionError(fail["log"])

    def finish(self, **how):
        calls.append(("finish", how, None))

def init(**how):
    calls.append(("init", how, None))
    if "init" in fail:
        raise RuntimeError(fail["init"])
    return run

run = Run()
log, finish = run.log, run.finish
"""


@pytest.fixture(params=["wandb", "trackio"])
def name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / f"{request.param}.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    yield request.param
    sys.modules.pop(request.param, None)


def calls(name: str, kind: str) -> list[tuple[Any, Any]]:
    return [(what, step) for called, what, step in sys.modules[name].calls if called == kind]


def epoch(metrics: MetricsLog, stage: str, number: int) -> None:
    metrics.append(stage, EpochMetrics(number, 10 * number, {"loss": 1 / number}, {"loss": 2.0}, 0.5))


def test_every_stage_is_logged_at_steps_that_grow(name: Any, tmp_path: Path) -> None:
    with Tracking(name, tmp_path, {"seed": 3}, print) as tracker:
        metrics = MetricsLog(tmp_path / "metrics.jsonl", tracking=tracker)
        for stage, number in (("pretrain", 1), ("pretrain", 2), ("ordered", 1), ("prior", 1), ("prior", 2)):
            epoch(metrics, stage, number)
    ((how, _),) = calls(name, "init")
    assert how["config"] == {"seed": 3}
    assert how["project"] == "anytime"
    assert how["resume"] == "allow"
    logged = calls(name, "log")
    assert [step for _, step in logged] == [10, 20, 30, 40, 50]
    assert logged[3][0] == {"prior/train/loss": 1.0, "prior/validation/loss": 2.0, "prior/epoch": 1}
    assert len(calls(name, "finish")) == 1


def test_a_killed_run_continues_without_repeated_steps(name: Any, tmp_path: Path) -> None:
    """Also in another process, and from a checkpoint before the last logged epoch."""
    tracker = Tracking(name, tmp_path, {}, print)  # never finished: it was killed
    metrics = MetricsLog(tmp_path / "metrics.jsonl", tracking=tracker)
    for number in (1, 2, 3):
        epoch(metrics, "prior", number)
    lines = read(metrics.path)[:1]
    with Tracking(name, tmp_path, {}, print) as again:
        resumed = MetricsLog(metrics.path, lines, again)
        for number in (2, 3, 4):
            epoch(resumed, "prior", number)
    (first, _), (second, _) = calls(name, "init")
    assert first == second, "the same run"
    assert [step for _, step in calls(name, "log")] == [10, 20, 30, 40]
    assert [line["step"] for line in read(metrics.path)] == [10, 20, 30, 40]


def test_a_tracker_that_was_not_there_before_receives_the_first_lines(name: Any, tmp_path: Path) -> None:
    """Those of reused stages, or of a run that began without it."""
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    epoch(metrics, "pretrain", 1)
    with Tracking(name, tmp_path, {}, print) as tracker:
        MetricsLog(metrics.path, read(metrics.path), tracker)
    assert [step for _, step in calls(name, "log")] == [10]


def test_two_run_directories_of_one_name_are_two_runs(name: Any, tmp_path: Path) -> None:
    for folder in ("a/run", "b/run"):
        (tmp_path / folder).mkdir(parents=True)
        with Tracking(name, tmp_path / folder, {}, print):
            pass
    (first, _), (second, _) = calls(name, "init")
    assert first != second


def test_a_failure_of_the_tracker_does_not_end_the_training(name: Any, tmp_path: Path) -> None:
    said: list[str] = []
    with Tracking(name, tmp_path, {}, said.append) as tracker:
        metrics = MetricsLog(tmp_path / "metrics.jsonl", tracking=tracker)
        epoch(metrics, "prior", 1)
        sys.modules[name].fail["log"] = "no route to host"
        epoch(metrics, "prior", 2)
        epoch(metrics, "prior", 3)
    assert said == [f"{name} stopped (no route to host); metrics.jsonl continues, and a resumed run sends the rest"]
    assert len(read(metrics.path)) == 3
    sys.modules[name].fail.clear()
    with Tracking(name, tmp_path, {}, print) as again:
        MetricsLog(metrics.path, read(metrics.path), again)
    assert [step for _, step in calls(name, "log")] == [10, 20, 20, 30]  # the second was refused


def test_a_tracker_that_cannot_start_is_one_sentence(name: Any, tmp_path: Path) -> None:
    (tmp_path / "packages" / f"{name}.py").write_text(STAND_IN + "fail['init'] = 'no API key configured.'\n")
    with pytest.raises(UserError, match=rf"`log` {name} cannot start \(no API key configured\); [^.]*$"):
        Tracking(name, tmp_path, {}, print)


def test_a_damaged_record_is_one_sentence(name: Any, tmp_path: Path) -> None:
    (tmp_path / "tracker.json").write_text(json.dumps({"format": 1, name: {"run": 3, "step": 0}}))
    with pytest.raises(UserError, match=r"tracker.json does not name a run of .*; restore it or remove it"):
        Tracking(name, tmp_path, {}, print)


@pytest.mark.parametrize("name", ["wandb"], indirect=True)
def test_an_interrupted_training_continues_the_same_run(name: Any, tmp_path: Path) -> None:
    config, dataset = with_scale(preset("digits", "paper", (1, 28, 28)), "smoke"), data.synthetic_images("digits", (1, 28, 28))

    class Interrupting(SilentReporter):
        stages = 0

        def stage(self, name: str, step: int, steps: int) -> None:
            self.stages += 1

        def progress(self, step: int, losses: Mapping[str, float]) -> None:
            if self.stages == 2 and step == 16:  # the end of the second stage's last epoch
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, dataset, tmp_path / "run", reporter=Interrupting(), log=name)
    train(config, dataset, tmp_path / "run", log=name)
    (first, _), (second, _) = calls(name, "init")
    assert first == second
    assert first["config"]["recipe"] == "paper"
    logged = calls(name, "log")
    assert [step for _, step in logged] == [8, 16, 24, 32, 40, 48]
    assert [next(iter(metrics)).partition("/")[0] for metrics, _ in logged[::2]] == ["pretrain", "ordered", "prior"]
    assert [how["exit_code"] for how, _ in calls(name, "finish")] == [1, 0], "the interrupted run is ended too"


def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_tracker").mkdir()  # as a tracker itself leaves in the working directory: not the package
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tracking.WandB, "package", "some_tracker")
    missing = r"^`log` wandb needs the package some_tracker, which is not installed; run `pip install some_tracker`$"
    with pytest.raises(UserError, match=missing):
        check_tracker("wandb")
    with pytest.raises(UserError, match="`log` 'mlflow' is not a tracker; choose one of tensorboard, wandb, trackio"):
        check_tracker("mlflow")


def test_the_command_refuses_a_missing_package_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "is_installed", lambda name: False)
    with pytest.raises(SystemExit) as ended:
        main(["train", "digits", "--scale", "smoke", "--out", str(tmp_path / "run"), "--log", "trackio"])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err == "anytime: --log trackio needs the package trackio, which is not installed; run `pip install trackio`\n"
    assert not (tmp_path / "run").exists()


def test_tensorboard_is_the_default_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            written.append(folder)

        def __getattr__(self, method: str) -> Any:
            return lambda *values: written.append((method, *values))

    module = type(sys)("tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setattr(tracking, "is_installed", lambda name: name == "tensorboard")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tracker = tracking.start_tracking(None, tmp_path, {"seed": 3}, print)
    assert tracker is not None
    with tracker:
        epoch(MetricsLog(tmp_path / "metrics.jsonl", tracking=tracker), "prior", 2)
    assert written[0] == str(tmp_path / "tensorboard")
    assert ("add_scalar", "prior/train/loss", 0.5, 2) in written
    assert written[-2:] == [("flush",), ("close",)]
    monkeypatch.setattr(tracking, "is_installed", lambda name: False)
    assert tracking.start_tracking(None, tmp_path, {}, print) is None
