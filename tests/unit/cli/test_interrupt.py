"""Ctrl-C, SIGTERM and SIGHUP stop the sampling, not the command; a second one aborts."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anytime
from anytime.cli.console import SamplingConsole
from anytime.sampling.engines.eager import EagerEngine


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    """The handlers of a terminal: a shell's background jobs ignore Ctrl-C, and nohup ignores SIGHUP."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupting(monkeypatch: pytest.MonkeyPatch, at: int, times: int, number: int = signal.SIGINT) -> None:
    """Send a signal once `at` codes are sampled, then after each further code, `times` in all."""
    pressed = []

    def progress(self: SamplingConsole, codes: int, used: float) -> None:
        if codes >= at and len(pressed) < times:
            pressed.append(codes)
            os.kill(os.getpid(), number)

    monkeypatch.setattr(SamplingConsole, "progress", progress)


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]
)
def test_the_first_signal_keeps_the_sample_made_so_far(
    number: signal.Signals, name: str, command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.getsignal(number)
    full, part = tmp_path / "full.npz", tmp_path / "part.npz"
    command("sample", model, "-n", 5, "--out", full)
    interrupting(monkeypatch, at=3, times=1, number=number)
    outcome = command("sample", model, "-n", 5, "--out", part, "--json")
    assert outcome.status == 0
    assert f"stopped by {name}" in outcome.out
    with np.load(full) as whole, np.load(part) as made:
        count = made["codes"].shape[1]
        assert count in (3, 4)  # the signal is seen before the next step or after it
        assert np.array_equal(made["codes"], whole["codes"][:, :count])
        assert made["data"].shape == whole["data"].shape
    assert f"{count} of" in outcome.out
    assert signal.getsignal(number) is handler


def test_unstarted_rows_are_reported(command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagerEngine, "microbatch", 4)
    interrupting(monkeypatch, at=2, times=1)
    outcome = command("sample", model, "-n", 10, "--out", tmp_path / "part.npz")
    assert outcome.out.startswith("4 of 10 samples of ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_second_signal_aborts(
    number: signal.Signals, command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.getsignal(number)
    interrupting(monkeypatch, at=2, times=2, number=number)
    # Both signals may arrive before sampling checks for them: send another while it finishes.
    from anytime.cli import sample

    original = sample._sample

    def stubborn(*words: Any) -> Any:
        result = original(*words)
        os.kill(os.getpid(), number)
        return result

    monkeypatch.setattr(sample, "_sample", stubborn)
    outcome = command("sample", model, "-n", 5, "--out", tmp_path / "x.npz")
    assert outcome.status == 130
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) is handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_write_leaves_nothing(
    number: signal.Signals, command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:10])
        os.kill(os.getpid(), number)
        raise AssertionError("the signal interrupts it")

    monkeypatch.setattr(Path, "write_bytes", killed)
    outcome = command("sample", model, "-n", 5, "--out", tmp_path / "x.npz")
    assert (outcome.status, outcome.err) == (130, "anytime: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_training_says_how_to_go_on(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anytime.training.run.train", interrupted)
    outcome = command("train", "digits", "--scale", "smoke")
    assert outcome.status == 130
    assert "anytime: interrupted; run the same command again to go on from the last checkpoint\n" in outcome.err


def test_a_deadline_says_what_was_start_up(command: Any, model: Path) -> None:
    outcome = command("sample", model, "-n", 1, "--within", "20ms")
    assert re.search(r"^\d+\.\d s of start-up \(.*\), before the time of --within began$", outcome.out, re.MULTILINE)
    assert "start-up" not in command("sample", model, "-n", 1).out


def test_an_ignored_hangup_stays_ignored(command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupting(monkeypatch, at=2, times=1, number=signal.SIGHUP)
    outcome = command("sample", model, "-n", 5, "--out", tmp_path / "x.npz")
    assert "5 samples of 8 of 8 codes" in outcome.out
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_terminal_that_closes_does_not_lose_the_sample(tmp_path: Path) -> None:
    """Closing the terminal sends SIGHUP, and what is then written to it fails."""
    out, command = tmp_path / "x.npz", [sys.executable, "-m", "anytime", "sample", "mnist", "-n", "20000"]
    ours, theirs = pty.openpty()
    source = str(Path(anytime.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "TERM": "xterm"}
    with subprocess.Popen(
        [*command, "--out", str(out)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, preexec_fn=_own_terminal
    ) as process:
        os.close(theirs)
        shown = b""
        while b"codes" not in shown:
            shown += os.read(ours, 1000)
        os.close(ours)
        assert process.wait(timeout=60) in (0, 1)
    with np.load(out) as made:
        assert made["codes"].shape[1] >= 1
        assert len(made["data"]) == len(made["codes"]) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def _own_terminal() -> None:
    """Make stdin the terminal that controls the process."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
