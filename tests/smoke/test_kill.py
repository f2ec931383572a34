"""Kill a run inside any stage and give the same command again: the model is that of an undisturbed run, byte for byte."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STAGES = ("pretrain", "ordered", "prior")
STEPS, EPOCHS = 48, 6  # of each stage
WEIGHTS = "model/model.safetensors"
KILLS = 12

Finished = Callable[[str], Path]
CommandOf = Callable[[str, Path], tuple[str, ...]]


@pytest.mark.parametrize("recipe", ["paper", "best"])
def test_a_run_killed_in_every_stage(
    recipe: str, launcher: Any, finished: Finished, command_of: CommandOf, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command_of(recipe, run)
    at: dict[str, Any] = {}
    for stage in STAGES:
        said = tmp_path / f"{stage}.txt"
        # Beyond the first epoch and inside the second: best weights and running sums must both come back.
        before, at = at, launcher.kill_inside(stage, run, *words, said=said, after=11)
        assert at["stage"] == stage
        assert 0 < at["step"] < STEPS
        assert not (run / "model").exists()
        (run / "checkpoints" / ".left.1.partial").write_bytes(b"as a kill during a write leaves it")
        if before:
            assert resumed(said.read_text()) == (before["stage"], before["step"])
    done = launcher.run(*words)
    assert done.returncode == 0, done.stderr
    assert resumed(done.stderr) == ("prior", at["step"])
    check_equal(run, finished(recipe))


def test_a_finished_run_stays_what_it_is(launcher: Any, finished: Finished, command_of: CommandOf, tmp_path: Path) -> None:
    """The same command once more, and on a copy whose last checkpoint is all that is left."""
    run = tmp_path / "run"
    shutil.copytree(finished("best"), run)
    shutil.rmtree(run / "model")
    assert launcher.run(*command_of("best", run)).returncode == 0
    check_equal(run, finished("best"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", ["paper", "best"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_any_moment(
    recipe: str, seed: int, launcher: Any, finished: Finished, command_of: CommandOf, tmp_path: Path
) -> None:
    """Kills at random moments after the start, wherever they fall: imports, steps, checkpoints, samples, the report."""
    run, moments = tmp_path / "run", random.Random(seed)
    words, stages, said = command_of(recipe, run), set(), tmp_path / "said.txt"
    for _ in range(KILLS):
        process = launcher.start(*words, said=said)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.2, 4.0))
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode in (0, -signal.SIGKILL), said.read_text()
        stages.add((resumed(said.read_text()) or ("",))[0])
    done = launcher.run(*words)
    assert done.returncode == 0, done.stderr
    assert stages >= {"", "prior"}
    check_equal(run, finished(recipe))


def resumed(said: str) -> tuple[str, int] | None:
    """The stage and the step at which a process says that it goes on."""
    found = re.search(r"^resuming the (\w+) stage at step (\d+) of (\d+)$", said, re.MULTILINE)
    return (found[1], int(found[2])) if found else None


def check_equal(run: Path, reference: Path) -> None:
    """The same model in bytes, the same errors and the same history, each epoch once and in order."""
    assert (run / WEIGHTS).read_bytes() == (reference / WEIGHTS).read_bytes()
    for name in ("model/config.json", "config.json", "errors.json", "samples/by-length.png"):
        assert (run / name).read_bytes() == (reference / name).read_bytes()
    mine, theirs = history(run), history(reference)
    assert [(line["stage"], line["epoch"]) for line in mine] == [(s, e) for s in STAGES for e in range(1, EPOCHS + 1)]
    assert mine == theirs
    assert not list(run.rglob("*.partial"))
    assert len(list((run / "checkpoints").glob("step-*"))) == 2


def history(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what a clock says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
