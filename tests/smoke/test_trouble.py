"""Accidents of a run: damaged files, a full disk, a loss of NaN, two processes at once. Nothing is lost."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from anytime.core.errors import UserError
from anytime.core.storage import read_tensors
from anytime.training import checkpoint
from anytime.training.log import MetricsLog
from anytime.training.loop import EpochMetrics
from anytime.training.tasks.prior import PriorTask

Finished = Callable[[str], Path]
CommandOf = Callable[[str, Path], tuple[str, ...]]
RunCLI = Callable[..., Any]
SMOKE = ("train", "digits", "--scale", "smoke")
WEIGHTS = "model/model.safetensors"


@pytest.fixture
def unfinished(finished: Finished, tmp_path: Path) -> Path:
    """A run with its last two checkpoints, at steps 47 and 48 of the prior, and without its model."""
    run = tmp_path / "run"
    shutil.copytree(finished("best"), run)
    shutil.rmtree(run / "model")
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    return content[:-500] + bytes([content[-500] ^ 16]) + content[-499:]


def moved_on(content: bytes) -> bytes:
    """Altered metadata: another step in an otherwise intact file."""
    assert content.count(b'\\"step\\": 48') == 1
    return content.replace(b'\\"step\\": 48', b'\\"step\\": 12')


@pytest.mark.parametrize("damage", [cut, flipped, moved_on, lambda content: b""], ids=["cut", "flipped", "facts", "emptied"])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(
    damage: Callable[[bytes], bytes], unfinished: Path, finished: Finished, command_of: CommandOf, run_cli: RunCLI
) -> None:
    path = unfinished / "checkpoints" / "step-000000144.safetensors"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    outcome = run_cli(*command_of("best", unfinished))
    assert outcome.status == 0
    assert "checkpoint step-000000144.safetensors is damaged" in outcome.err
    assert "set aside as step-000000144.damaged" in outcome.err
    assert "resuming the prior stage at step 47 of 48" in outcome.err
    assert path.with_suffix(".damaged").read_bytes() == damaged
    assert (unfinished / WEIGHTS).read_bytes() == (finished("best") / WEIGHTS).read_bytes()


def test_without_an_intact_checkpoint_a_run_starts_again(
    unfinished: Path, finished: Finished, command_of: CommandOf, run_cli: RunCLI
) -> None:
    for path in (unfinished / "checkpoints").glob("step-*"):
        path.write_bytes(cut(path.read_bytes()))
    outcome = run_cli(*command_of("best", unfinished))
    assert outcome.err.count("is damaged") == 2
    assert "resuming" not in outcome.err
    assert (unfinished / WEIGHTS).read_bytes() == (finished("best") / WEIGHTS).read_bytes()
    assert (unfinished / "metrics.jsonl").read_bytes().count(b"\n") == 18


def test_lost_metrics_do_not_come_back_as_zeros(unfinished: Path, command_of: CommandOf, run_cli: RunCLI) -> None:
    (unfinished / "metrics.jsonl").unlink()
    assert run_cli(*command_of("best", unfinished)).status == 0
    assert b"\0" not in (unfinished / "metrics.jsonl").read_bytes()


def zero_filled(content: bytes) -> bytes:
    """A block that never reached the disk."""
    return content[:300] + bytes(200) + content[500:]


def ending_in_zeros(content: bytes) -> bytes:
    return content[:-200] + bytes(200)


@pytest.mark.parametrize("damage", [cut, zero_filled, ending_in_zeros, lambda content: bytes(len(content))])
def test_damaged_metrics_do_not_stop_a_run(
    damage: Callable[[bytes], bytes], unfinished: Path, finished: Finished, command_of: CommandOf, run_cli: RunCLI
) -> None:
    """Intact lines are kept, and no other ones come back."""
    path = unfinished / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(damage(path.read_bytes()))
    outcome = run_cli(*command_of("best", unfinished))
    assert outcome.status == 0, outcome.err
    kept = path.read_bytes().splitlines(keepends=True)
    assert kept == [line for line in lines if line in kept]
    assert b"\0" not in path.read_bytes()
    assert (unfinished / WEIGHTS).read_bytes() == (finished("best") / WEIGHTS).read_bytes()
    assert run_cli(*command_of("best", unfinished)).status == 0, "nor the next time"


def test_metrics_are_on_disk_before_a_checkpoint(run_cli: RunCLI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened = list[str]()
    write, sync = checkpoint.write, MetricsLog.sync
    monkeypatch.setattr(checkpoint, "write", lambda *given: (happened.append("checkpoint"), write(*given))[1])
    monkeypatch.setattr(MetricsLog, "sync", lambda metrics: (happened.append("sync"), sync(metrics))[1])
    assert run_cli(*SMOKE, "--out", tmp_path / "run").status == 0
    assert happened
    assert happened == ["sync", "checkpoint"] * (len(happened) // 2)


def test_a_run_resumed_twice_with_damaged_metrics_has_no_epoch_twice(
    unfinished: Path, finished: Finished, command_of: CommandOf, run_cli: RunCLI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is shorter than at the checkpoint: where to cut it is known by the epoch, not by its size."""
    newest = unfinished / "checkpoints" / "step-000000144.safetensors"
    newest.unlink()  # step 47 of 48 is left
    path = unfinished / "metrics.jsonl"
    content = path.read_bytes()
    path.write_bytes(b"damaged\n" + content.partition(b"\n")[2])
    with monkeypatch.context() as patch:
        patch.setattr("anytime.training.run.Run._diagnose", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run_cli(*command_of("best", unfinished)).status == 130  # after the last epoch, before its checkpoint
    assert run_cli(*command_of("best", unfinished)).status == 0
    epochs = [(line["stage"], line["epoch"]) for line in map(json.loads, path.read_text().splitlines())]
    assert epochs == [(s, e) for s in ("pretrain", "ordered", "prior") for e in range(1, 7)][1:]


def test_info_says_what_changed_in_a_run(finished: Finished, run_cli: RunCLI, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished("best"), run)
    outcome = run_cli("info", run, "--check", "--json")
    assert outcome.status == 0, outcome.err
    files = json.loads(outcome.out.splitlines()[-1])["files"]
    expected = {"config.json", "environment.json", "metrics.jsonl", "code_stats.json", "model/config.json", WEIGHTS}
    assert expected | {f"checkpoints/after-{stage}.safetensors" for stage in ("pretrain", "ordered")} <= set(files)
    assert f"{len(files)} unchanged since training" in outcome.out
    (run / WEIGHTS).write_bytes(flipped((run / WEIGHTS).read_bytes()))
    (run / "metrics.jsonl").unlink()
    sentence = run_cli("info", run, "--check").sentence
    assert f"{run} changed since its training: {WEIGHTS} is altered and metrics.jsonl is missing" in sentence
    (run / "model" / "other.safetensors").touch()
    assert "metrics.jsonl is missing and model/other.safetensors is new" in run_cli("info", run, "--check").sentence


def test_a_run_killed_before_its_record_gets_it_the_next_time(
    finished: Finished, command_of: CommandOf, run_cli: RunCLI, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished("best"), run)
    before = (run / "files.json").read_bytes()
    (run / "files.json").unlink()
    assert "no hashes are recorded" in run_cli("info", run, "--check").out
    assert run_cli(*command_of("best", run)).status == 0
    assert (run / "files.json").read_bytes() == before


def test_an_unfinished_run_is_not_a_model(unfinished: Path, run_cli: RunCLI, tmp_path: Path) -> None:
    for words in (["sample", unfinished, "--out", tmp_path / "x.png"], ["info", unfinished]):
        sentence = run_cli(*words).sentence
        assert "unfinished run" in sentence
        assert "same `anytime train` command" in sentence
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--seed", "1"], "seed = 0, not 1"),
        (["--set", "prior.epochs=7"], "prior.epochs = 6, not 7"),
        (["--set", "model.prior.layers=3"], "model.prior.layers = 2, not 3"),
        (["--truncation", "geometric:0.5"], "ordered.truncation."),
        (["--recipe", "paper"], "="),
    ],
)
def test_a_run_of_another_config_is_refused(
    words: list[str], key: str, finished: Finished, command_of: CommandOf, run_cli: RunCLI
) -> None:
    run = finished("best")
    before = contents(run)
    sentence = run_cli(*command_of("best", run), *words).sentence
    assert f"{run} holds a run with" in sentence
    assert key in sentence
    assert contents(run) == before


def test_an_edited_config_is_refused(unfinished: Path, command_of: CommandOf, run_cli: RunCLI) -> None:
    path = unfinished / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": "blue"}))
    assert "colour = blue" in run_cli(*command_of("best", unfinished)).sentence
    path.write_text(path.read_text()[:100])
    assert "config.json cannot be read as JSON" in run_cli(*command_of("best", unfinished)).sentence


def test_two_processes_never_train_in_one_run_dir(launcher: Any, run_cli: RunCLI, tmp_path: Path) -> None:
    words = (*SMOKE, "--set", "pretrain.epochs=500", "--out", tmp_path / "run")
    process = launcher.start(*words, stderr_path=tmp_path / "said.txt")
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("run/checkpoints/step-*.safetensors")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        sentence = run_cli(*words).sentence
        assert f"another process is training in {tmp_path / 'run'} (process {process.pid} on " in sentence
        assert f", started {time.strftime('%Y-')}" in sentence
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_lock_is_checked_before_anything_is_written(unfinished: Path, command_of: CommandOf, run_cli: RunCLI) -> None:
    before = contents(unfinished)
    with (unfinished / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process" in run_cli(*command_of("best", unfinished)).sentence
    assert contents(unfinished) == before


@pytest.mark.parametrize(
    ("stage", "settings"),
    [("pretrain", ["pretrain.lr=1e30"]), ("ordered", ["ordered.lr=1e30"]), ("prior", ["prior.lr=1e30"])],
)
@pytest.mark.parametrize("recipe", ["paper", "best"])
def test_a_loss_of_nan_stops_the_run(recipe: str, stage: str, settings: list[str], run_cli: RunCLI, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = (*SMOKE, "--recipe", recipe, "--out", run, *(word for setting in settings for word in ("--set", setting)))
    outcome = run_cli(*words)
    assert "the loss became NaN or infinite at step " in outcome.sentence
    assert f" of the {stage} stage" in outcome.sentence
    assert f"--set {stage}.lr" in outcome.sentence
    step = int(outcome.sentence.partition("at step ")[2].split()[0])
    tensors, facts, _ = read_tensors(max((run / "checkpoints").glob("step-*.safetensors")))
    assert facts["stage"] == stage
    assert facts["step"] == step  # all steps before the bad one are done
    assert all(bool(tensor.isfinite().all()) for name, tensor in tensors.items() if name.startswith("model/"))
    assert not (run / "model").exists()
    before = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    assert run_cli(*words).sentence == outcome.sentence
    assert {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()} == before


def test_a_validation_loss_of_nan_stops_the_run(run_cli: RunCLI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PriorTask, "validate", lambda task: {"loss": float("nan")})
    sentence = run_cli(*SMOKE, "--out", tmp_path / "run").sentence
    assert "the loss became NaN or infinite at step 7 of the prior stage" in sentence
    assert not (tmp_path / "run" / "model").exists()


@contextmanager
def full_disk(limit_bytes: int) -> Iterator[None]:
    """Limit the size of files in this process: a larger write fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("out", ["x.png", "x.npz", "x.gif", "folder"])
def test_samples_on_a_full_disk(out: str, finished: Finished, run_cli: RunCLI, tmp_path: Path) -> None:
    run = finished("best")
    (tmp_path / "x.png").write_bytes(b"old")
    before = contents(tmp_path)
    with full_disk(64):
        sentence = run_cli("sample", run, "-n", 4, "--out", tmp_path / out).sentence
    assert str(tmp_path / out) in sentence
    assert "cannot be written" in sentence
    assert contents(tmp_path) == before


def test_reconstructions_on_a_full_disk(finished: Finished, run_cli: RunCLI, tmp_path: Path) -> None:
    assert run_cli("sample", finished("best"), "-n", 1, "--out", tmp_path / "x").status == 0
    before = contents(tmp_path)
    with full_disk(64):
        outcome = run_cli("reconstruct", finished("best"), tmp_path / "x" / "x-0000.png", "--out", tmp_path / "back")
    assert "cannot be written" in outcome.sentence
    assert contents(tmp_path) == before


def test_training_on_a_full_disk_resumes_when_there_is_room(
    launcher: Any, run_cli: RunCLI, finished: Finished, command_of: CommandOf, tmp_path: Path
) -> None:
    """The disk is full at the first grid or checkpoint; with room again, the same command gives the same weights."""
    run = tmp_path / "run"
    words = command_of("best", run)
    done = launcher.run(*words, limit_bytes=200 * 1024)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("anytime: ")
    assert "cannot be written (File too large)" in last
    assert "Traceback" not in done.stderr
    assert not list(run.rglob("*.partial"))
    assert run_cli(*words).status == 0
    assert (run / WEIGHTS).read_bytes() == (finished("best") / WEIGHTS).read_bytes()


def test_metrics_on_a_full_disk(tmp_path: Path) -> None:
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    with full_disk(64), pytest.raises(UserError, match=r"metrics\.jsonl cannot be written"):
        metrics.append("pretrain", EpochMetrics(1, 8, {"loss": 1.0}, {"loss": 1.0}, 0.1))


def test_stages_of_another_run_are_reused(finished: Finished, command_of: CommandOf, run_cli: RunCLI, tmp_path: Path) -> None:
    """Stages with the same settings are reused, and the model equals the one of a run without reuse."""
    other, run = finished("best"), tmp_path / "run"
    outcome = run_cli(*command_of("best", run), "--reuse", other)
    assert outcome.status == 0
    assert {line.split()[0] for line in outcome.err.splitlines() if "left" in line} == {"prior"}
    assert (run / WEIGHTS).read_bytes() == (other / WEIGHTS).read_bytes()
    assert (run / "code_stats.json").read_bytes() == (other / "code_stats.json").read_bytes()
    epochs = [(line["stage"], line["epoch"]) for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]
    assert epochs == [(stage, epoch) for stage in ("pretrain", "ordered", "prior") for epoch in range(1, 7)]


def test_run_that_cannot_be_reused(finished: Finished, command_of: CommandOf, run_cli: RunCLI, tmp_path: Path) -> None:
    other, run = finished("best"), tmp_path / "run"
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(other / "config.json", begun)
    for words, named in (
        (["--set", "pretrain.lr=0.1", "--reuse", other], f"--reuse {other} was trained with pretrain.lr = 0.002, not 0.1"),
        (["--seed", "3", "--reuse", other], f"--reuse {other} was trained with seed = 0, not 3"),
        (["--reuse", tmp_path / "nowhere"], f"--reuse {tmp_path / 'nowhere'} is not a run directory"),
        (["--reuse", begun], f"--reuse {begun} has not finished its first stage"),
    ):
        assert named in run_cli(*command_of("best", run), *words).sentence
        assert not run.exists()


def test_a_missing_gpu(run_cli: RunCLI, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert "--device cuda needs an NVIDIA GPU" in run_cli(*SMOKE, "--device", "cuda", "--out", tmp_path / "run").sentence
    assert not (tmp_path / "run").exists()
