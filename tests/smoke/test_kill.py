"""Kill a run inside any stage and run the same command again: the model equals that of an uninterrupted run, byte for byte."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STAGES = ("pretrain", "ordered", "prior")
STEPS, EPOCHS = 48, 6  # of each stage
KILLS = 20
WEIGHTS = "model/model.safetensors"

Finished = Callable[[str], Path]
CommandOf = Callable[[str, Path], tuple[str, ...]]


@pytest.mark.parametrize("recipe", ["paper", "best"])
def test_a_run_killed_in_every_stage(
    recipe: str, launcher: Any, run_cli: Any, finished: Finished, command_of: CommandOf, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command_of(recipe, run)
    at: dict[str, Any] = {}
    for stage in STAGES:
        stderr_path = tmp_path / f"{stage}.txt"
        # Beyond the first epoch and inside the second: best weights and running sums must both come back.
        before, at = at, launcher.kill_inside(stage, run, *words, stderr_path=stderr_path, after=11)
        assert at["stage"] == stage
        assert 0 < at["step"] < STEPS
        assert not (run / "model").exists()
        (run / "checkpoints" / ".left.0123abcd.partial").write_bytes(b"as a kill during a write leaves it")
        if before:
            assert resumed(stderr_path.read_text()) == (before["stage"], before["step"])
    done = run_cli(*words)
    assert done.status == 0, done.err
    assert resumed(done.err) == ("prior", at["step"])
    check_equal(run, finished(recipe))


def test_a_run_without_its_model_is_finished_from_the_last_checkpoint(
    run_cli: Any, finished: Finished, command_of: CommandOf, tmp_path: Path
) -> None:
    """Run the same command on a copy without its model, whose last checkpoint is left."""
    run = tmp_path / "run"
    shutil.copytree(finished("best"), run)
    shutil.rmtree(run / "model")
    assert run_cli(*command_of("best", run)).status == 0
    check_equal(run, finished("best"))
    assert run_cli("info", run, "--check").status == 0  # hashed again: there is another start


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", ["paper", "best"])
def test_a_run_killed_at_twenty_random_moments(
    recipe: str, launcher: Any, finished: Finished, command_of: CommandOf, tmp_path: Path, record_property: Any
) -> None:
    """Kill wherever the moments fall: during imports, a step, a write, a grid, and the last ones after the last step."""
    run, draw, last = tmp_path / "run", random.Random(recipe), len(STAGES) * STEPS
    moments = [*sorted(draw.sample(range(last), KILLS - 3)), last, last, last]
    killed_at = []
    for moment in moments:
        seconds = draw.uniform(0, 0.1) if moment < last else draw.uniform(0, 0.5)
        condition = after(launcher, run, max(moment, launcher.steps(run)), seconds)
        if not launcher.kill_when(condition, *command_of(recipe, run), stderr_path=tmp_path / "said.txt"):
            break  # it was finished before the last moments came
        killed_at.append(launcher.steps(run))
    kills_while_starting = 0
    while len(killed_at) < KILLS:  # the rest of the kills: while it starts, when it may be finished already
        started, seconds = time.monotonic(), draw.uniform(0.1, 2)
        condition = lambda started=started, seconds=seconds: time.monotonic() - started > seconds  # noqa: E731
        assert launcher.kill_when(condition, *command_of(recipe, run), stderr_path=tmp_path / "said.txt")
        killed_at.append(launcher.steps(run))
        kills_while_starting += 1
    record_property("kills", len(killed_at))
    record_property("steps_at_kills", killed_at)
    record_property("kills_while_starting", kills_while_starting)
    assert launcher.run(*command_of(recipe, run)).returncode == 0
    check_equal(run, finished(recipe))


def after(launcher: Any, run: Path, steps: int, seconds: float) -> Callable[[], bool]:
    """Return a condition that holds `seconds` after `steps` steps of a run are done."""
    seen: list[float] = []

    def condition() -> bool:
        if not seen and launcher.steps(run) >= steps:
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] >= seconds

    return condition


def resumed(stderr_path: str) -> tuple[str, int] | None:
    """Return the stage and the step at which a process says that it resumes."""
    found = re.search(r"^resuming the (\w+) stage at step (\d+) of (\d+)$", stderr_path, re.MULTILINE)
    return (found[1], int(found[2])) if found else None


def check_equal(run: Path, reference: Path) -> None:
    """Check that model, errors and metrics are the same, with each epoch once and in order."""
    assert (run / WEIGHTS).read_bytes() == (reference / WEIGHTS).read_bytes()
    for name in ("model/config.json", "config.json", "errors.json", "samples/by-length.png"):
        assert (run / name).read_bytes() == (reference / name).read_bytes()
    mine, theirs = history(run), history(reference)
    assert [(line["stage"], line["epoch"]) for line in mine] == [(s, e) for s in STAGES for e in range(1, EPOCHS + 1)]
    assert mine == theirs
    assert not list(run.rglob("*.partial"))
    assert len(list((run / "checkpoints").glob("step-*"))) == 2


def history(run: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl without the seconds."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
