from __future__ import annotations

import io
import re
import sys

import pytest

from anytime.core import progress
from anytime.core.progress import DownloadBar, LineReporter, WholeReporter, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_items_pass_through_and_the_bar_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(track(range(5), 5, "working")) == [0, 1, 2, 3, 4]
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
    assert list(track(range(5), 5, "working", delay=0.0)) == [0, 1, 2, 3, 4]
    assert "working" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_the_output_of_a_notebooks_command_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars move the cursor, which a notebook ignores."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert list(track(range(5), 5, "working", delay=0.0)) == [0, 1, 2, 3, 4]
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


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


def test_the_time_left_is_that_of_all_stages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    whole = WholeReporter(LineReporter(), {"reference": 500, "samples": 300, "held-out": 200})
    whole.stage("samples", 100, 300)  # the reference was cached, and this stage is resumed
    now += 20
    whole.progress(200, {})  # 100 examples in 20 s; 100 and 200 are left
    whole.stage("speed", 0, 3)
    now += 20
    whole.progress(1, {"loss": 1.0})
    first, second = capsys.readouterr().err.splitlines()
    assert first == "samples 200/300  20 s left  percent of all examples 70  seconds left 60"
    assert re.fullmatch(r"speed 1/3  \d+ s left  loss 1", second), "a stage that is not planned is reported as it is"
