"""A closed or full stdout, few characters, too little memory: one sentence, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anytime.cli import data, main


def shown(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, with its redirections."""
    command = words.replace("anytime", f"{sys.executable} -m anytime")
    return subprocess.run(command, shell=True, capture_output=True, text=True, env={**os.environ, **environment})


def test_stdout_may_be_closed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "--json"])
    assert end.value.code == 0
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", ["anytime --version", "anytime reproduce --json"])
def test_stdout_on_a_full_disk(words: str) -> None:
    done = shown(f"{words} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == "anytime: the output cannot be written (No space left on device); make room\n"


def test_a_terminal_without_some_characters_shows_question_marks() -> None:
    done = shown("anytime data list", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1?28?28" in done.stdout


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes")])
def test_too_little_memory_is_one_sentence(
    error: Exception, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(arguments: data.Arguments) -> None:
        raise error

    monkeypatch.setattr(data, "run", greedy)
    outcome = command("data", "list")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == "anytime: this does not fit into memory; ask for less at a time\n"


def test_another_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(arguments: data.Arguments) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(data, "run", wrong)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["data", "list"])
