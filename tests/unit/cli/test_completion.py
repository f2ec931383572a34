"""`anytime completion` prints scripts that complete: bash, and where they are installed zsh and fish, are asked."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anytime.cli import VERBS
from anytime.cli.completion import bash, fish, zsh

Command = Callable[..., Any]


def completed(folder: Path, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    typed = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _anytime; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    run = subprocess.run(["bash", "-c", f"{bash()}\n{ask}"], cwd=folder, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return run.stdout.split("\n")[:-1]


def test_bash_completes_verbs_options_choices_models_and_files(tmp_path: Path) -> None:
    (tmp_path / "my runs").mkdir()
    assert completed(tmp_path, "anytime", "sa") == ["sample"]
    assert set(completed(tmp_path, "anytime", "")) == {*VERBS, "--help", "--version"}
    assert completed(tmp_path, "anytime", "sample", "--wi") == ["--within"]
    assert completed(tmp_path, "anytime", "sample", "mnist", "--engine", "e") == ["eager"]
    assert completed(tmp_path, "anytime", "sample", "m") == ["mnist", "my runs"]
    assert completed(tmp_path, "anytime", "sample", "mnist", "--refine", "m") == ["my runs"], "a value is not a model"
    assert completed(tmp_path, "anytime", "train", "--pr") == ["--prior"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, command: Command) -> None:
    script = {"bash": bash, "zsh": zsh, "fish": fish}[shell]()
    assert command("completion", shell).out == f"{script}\n"
    assert json.loads(command("completion", shell, "--json").out) == {"shell": shell, "script": script}
    assert all(verb in script for verb in VERBS)


def test_fish_gets_every_option() -> None:
    assert "-n '__fish_seen_subcommand_from sample' -l engine -x -a 'eager packed onnx cuda megakernel'" in fish()
    assert "-n '__fish_seen_subcommand_from sample' -s n -r" in fish()
    assert "-n '__fish_seen_subcommand_from info' -l check\n" in fish()


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes() -> None:
    ask = "complete -C 'anytime sample mnist --engine e'"
    run = subprocess.run(["fish", "--no-config", "-c", f"{fish()}\n{ask}"], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["eager"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_registers_the_function() -> None:
    script = f"autoload -U compinit && compinit -D -u\n{zsh()}\nprint $_comps[anytime]; whence -w _anytime"
    run = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True)
    assert "_bash_complete" in run.stdout
    assert "_anytime: function" in run.stdout


def test_an_unknown_shell_is_refused(refused: Callable[..., str]) -> None:
    assert "bash" in refused("completion", "csh")
    assert "is missing" in refused("completion")
