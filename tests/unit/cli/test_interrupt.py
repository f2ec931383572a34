"""Ctrl-C stops the sampling, not the command; a second one aborts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anytime.cli.console import SamplingConsole
from anytime.sampling.engines.eager import EagerEngine


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    """The handler of a terminal: a shell's background jobs ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(monkeypatch: pytest.MonkeyPatch, at: int, times: int) -> None:
    """Press Ctrl-C once `at` codes are sampled, then after each further code, `times` in all."""
    pressed = []

    def progress(self: SamplingConsole, codes: int, used: float) -> None:
        if codes >= at and len(pressed) < times:
            pressed.append(codes)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(SamplingConsole, "progress", progress)


def test_the_first_interrupt_keeps_the_sample_made_so_far(
    command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, part = tmp_path / "full.npz", tmp_path / "part.npz"
    command("sample", model, "-n", 5, "--out", full)
    interrupting(monkeypatch, at=3, times=1)
    outcome = command("sample", model, "-n", 5, "--out", part, "--json")
    assert outcome.status == 0
    assert "stopped by Ctrl-C" in outcome.out
    with np.load(full) as whole, np.load(part) as made:
        count = made["codes"].shape[1]
        assert count in (3, 4)  # the signal is seen before the next step or after it
        assert np.array_equal(made["codes"], whole["codes"][:, :count])
        assert made["data"].shape == whole["data"].shape
    assert f"{count} of" in outcome.out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_unstarted_rows_are_reported(command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagerEngine, "microbatch", 4)
    interrupting(monkeypatch, at=2, times=1)
    outcome = command("sample", model, "-n", 10, "--out", tmp_path / "part.npz")
    assert outcome.out.startswith("4 of 10 samples of ")


def test_the_second_interrupt_aborts(command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting(monkeypatch, at=2, times=2)
    # Both signals may arrive before sampling checks for them: press again while it finishes.
    from anytime.cli import sample

    original = sample._sample

    def stubborn(*words: Any) -> Any:
        result = original(*words)
        os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(sample, "_sample", stubborn)
    outcome = command("sample", model, "-n", 5, "--out", tmp_path / "x.npz")
    assert outcome.status == 130
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
