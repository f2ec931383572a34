from __future__ import annotations

import io
import sys

import pytest

from anytime.core.progress import DownloadBar, track


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
