from __future__ import annotations

import io
import sys

import pytest

from anytime.core import progress
from anytime.core.progress import DownloadBar, LineReporter, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_items_pass_through_and_the_bar_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(track(range(5), 5, "working")) == [0, 1, 2, 3, 4]
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
    assert list(track(range(5), 5, "working", delay=0.0)) == [0, 1, 2, 3, 4]
    assert "working" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(5), 5, "working", delay=0.0)) == [0, 1, 2, 3, 4]
    bar = DownloadBar("a.gz", 100)
    bar.update(10)
    bar.reset()
    bar.close()
    assert capsys.readouterr().err == ""


def test_a_download_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = DownloadBar("a.gz", 100)
    bar.update(50)
    bar.reset()
    bar.update(100)
    bar.close()
    assert "a.gz" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_lines_are_printed_every_ten_seconds_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines = LineReporter()
    lines.stage("samples", 10, 50)
    for step in range(11, 51):
        now += 1.0
        lines.progress(step, {"loss": 0.5} if step < 50 else {})
    captured = capsys.readouterr()
    assert captured.out == "", "stdout is for results"
    assert captured.err.splitlines() == [
        "samples 11/50  39 s left  loss 0.5",
        "samples 22/50  28 s left  loss 0.5",
        "samples 33/50  17 s left  loss 0.5",
        "samples 44/50  6 s left  loss 0.5",
        "samples 50/50  0 s left",
    ]
