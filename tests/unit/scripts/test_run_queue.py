"""The GPU queue: valid commands, all runs that experiments need, and pieces that fit a call."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

import queue_allocations
import run_queue
from anytime.cli import reproduce as verb
from anytime.cli.options import parse
from anytime.experiments.registry import find
from run_queue import MINUTES, PIECES, Outcome, Piece


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
@pytest.mark.parametrize("scale", [None, "smoke"])
def test_every_command_is_accepted(piece: run_queue.Piece, scale: str | None) -> None:
    verb_name, *words = piece.command("FOLDER", "FILE", scale)
    assert verb_name == "reproduce"
    arguments = parse(verb.Arguments, words, "reproduce", "")
    assert verb._dataset_name(arguments, find(piece.experiment)) == piece.dataset
    assert verb._check_arguments(arguments, find(piece.experiment)) == tuple(int(seed) for seed in piece.seeds.split(","))
    assert (arguments.minutes or MINUTES) == MINUTES < 9
    assert piece.calls <= 3


@pytest.mark.parametrize("words", run_queue.decide_commands("FOLDER", "FILE"), ids=lambda words: "-".join(words[1:4:2]))
def test_an_experiment_is_decided_from_measured_pieces(words: list[str]) -> None:
    """Every run of the experiment is measured by a piece: its own, or one of an experiment with the same measurements."""
    arguments = parse(verb.Arguments, words[1:], "reproduce", "")
    assert verb._check_arguments(arguments, find(words[1])) == (0, 1) and arguments.cached, "it trains nothing"
    experiment, dataset = find(words[1]), words[3]
    shared = {"regularization", "tailored", "priors"}, {"fid", "objective"}
    group = next((names for names in shared if experiment.name in names), {experiment.name})
    measured = {
        (run, piece.seeds) for piece in PIECES if piece.experiment in group and piece.dataset == dataset
        for run in piece.only.split(",")
    }  # fmt: skip
    assert set(product(experiment.runs, ("0", "1"))) <= measured


def test_names_are_unique_and_order_is_kept() -> None:
    names = [piece.name for piece in PIECES]
    assert len(set(names)) == len(names)
    for piece in PIECES:
        assert not piece.after or names.index(piece.after) < names.index(piece.name)


def test_an_unknown_piece(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_queue.main(["regularisation-0"]) == 2
    assert "there is no piece 'regularisation-0'; --list names them" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_queue.main(["--list", "--data", "/data"]) == 0
    out = capsys.readouterr().out
    assert "--only ordered-5k,unordered-5k --data /data/cifar10" in out
    assert "minutes in all" in out


def test_a_piece_is_run_and_its_measurements_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "classifiers").mkdir(parents=True)
    (tmp_path / "cache" / "classifiers" / "mnist-1.safetensors").write_bytes(b"weights")

    def run(words: list[str], runs_dir: Path, name: str) -> Outcome:
        calls.append(words)
        (runs_dir / "measured").mkdir(parents=True, exist_ok=True)
        (runs_dir / "measured" / "vae-cifar10-smoke.json").write_text("{}")
        return Outcome(0, True)

    monkeypatch.setattr(run_queue, "run", run)
    places = ["--runs-dir", str(tmp_path / "runs"), "--measured", str(tmp_path / "out")]
    assert run_queue.main(["vae-1", "--scale", "smoke", *places]) == 0
    assert [words[1] for words in calls] == ["vae"] and "--only" in calls[0]
    copied = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*"))
    assert copied == ["classifiers/mnist-1.safetensors", "vae-cifar10-smoke.json"]


class Calls:
    """Stands for `run_queue.run`: says which pieces were called, and how each ends."""

    def __init__(self, finished: bool = True, together: int = 1) -> None:
        self.names, self.finished, self.barrier = list[str](), finished, threading.Barrier(together, timeout=10)

    def __call__(self, words: Sequence[str], runs_dir: Path, name: str) -> Outcome:
        self.names.append(name)
        self.barrier.wait()
        return Outcome(0, self.finished)


def test_two_pieces_at_a_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The barrier lets nobody through until two pieces run at once."""
    calls = Calls(together=2)
    monkeypatch.setattr(run_queue, "run", calls)
    assert run_queue.main(["vae-0", "vae-1", "--scale", "smoke", "--jobs", "2"]) == 0
    assert sorted(calls.names) == ["vae-0", "vae-1"]
    assert capsys.readouterr().out.splitlines() == ["vae-0: done", "vae-1: done"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_piece_that_needs_an_unfinished_one_is_not_started(
    jobs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = Calls(finished=False)
    monkeypatch.setattr(run_queue, "run", calls)
    assert run_queue.main(["means-0", "unordered-0", "--scale", "smoke", "--jobs", jobs]) == 0
    assert calls.names == ["means-0"]
    assert capsys.readouterr().out.splitlines() == ["means-0: not finished", "unordered-0: not started"]


def test_pieces_share_the_minutes_of_a_call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now, minutes = [0.0], list[float]()

    def run(words: Sequence[str], runs_dir: Path, name: str) -> Outcome:
        minutes.append(float(words[words.index("--minutes") + 1]))
        now[0] += 60 * 5
        return Outcome(0, True)

    monkeypatch.setattr(run_queue, "run", run)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setenv("ANYTIME_COMMIT", "abc1234")
    assert run_queue.main(["vae-0", "vae-1", "vae-0.002-0"]) == 0
    assert minutes == [8.5, 3.5], "a third piece has no time left"
    assert "vae-0.002-0: not started" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("commit", "words"), [("abc1234-dirty", "uncommitted changes"), (None, "is unknown; name it in ANYTIME_COMMIT")]
)
def test_code_that_nobody_could_repeat_is_refused(
    commit: str | None, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_queue, "run", Calls())
    monkeypatch.setattr(run_queue, "environment", lambda device: {"commit": commit})
    assert run_queue.main(["vae-0"]) == 2
    assert words in capsys.readouterr().err


def test_times_are_not_measured_beside_other_pieces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_queue, "run", Calls())
    assert run_queue.main(["vae-0", "speed-cifar10", "--jobs", "2", "--scale", "smoke"]) == 2
    assert "speed-cifar10 measures times and needs the machine for itself" in capsys.readouterr().err
    assert run_queue.main(["vae-0", "speed-cifar10", "--scale", "smoke"]) == 0


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("print('{\"finished\": false, \"measured\": true}'); import sys; print('a late warning', file=sys.stderr)", (0, True)),
        ('print(\'{"finished": false, "measured": false}\')', (0, False)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", (-9, False)),
    ],
)
def test_how_a_call_ended(
    code: str, outcome: tuple[int, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "$PROGRAM"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PROGRAM", code)
    monkeypatch.setattr("sys.executable", str(program))
    assert run_queue.run(["reproduce", "vae"], tmp_path, "vae-0") == Outcome(*outcome)
    assert "vae-0 $ anytime reproduce vae --runs-dir" in capsys.readouterr().out


def test_allocations_hold_every_piece_once_and_fit() -> None:
    found = queue_allocations.allocations()
    names = [piece.name for allocation in found for piece in allocation.pieces]
    assert sorted(names) == sorted(piece.name for piece in PIECES)
    for allocation in found:
        assert allocation.minutes <= queue_allocations.LIMIT
        assert all(piece.alone for piece in allocation.alone) and not any(piece.alone for piece in allocation.beside)
        own = [piece.name for piece in allocation.pieces]
        for piece in allocation.pieces:
            assert not piece.after or own.index(piece.after) < own.index(piece.name), "on one machine, and later"
    assert names[-1] == "audio-decide"


def test_the_allocations_decide_every_experiment() -> None:
    pieces = [piece for allocation in queue_allocations.allocations() for piece in allocation.pieces]
    decided = queue_allocations.decided(pieces)
    assert {"pca-prior, mnist", "fid, cifar10", "fid, celeba", "speed, celeba", "audio, audiomnist"} < set(decided)
    assert len(decided) == len(run_queue.DECIDE) + 1 + 3, "fid on two datasets; two of speed, and audio"
    without = [piece for piece in pieces if piece.name != "original-1"]
    assert set(decided) - set(queue_allocations.decided(without)) == {"fid, cifar10"}


def test_a_chain_that_does_not_fit_opens_a_allocation() -> None:
    def piece(name: str, minutes: int, after: str = "") -> Piece:
        return Piece(name, "fid", "cifar10", "ordered", minutes, after=after)

    found = queue_allocations.allocations([piece("a", 12), piece("b", 12), piece("c", 8, "b"), piece("d", 8)])
    assert [[each.name for each in allocation.pieces] for allocation in found] == [["a", "d"], ["b", "c"]]
