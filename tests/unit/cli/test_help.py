"""Every verb explains itself at once: before torch is imported."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anytime
from anytime.cli import VERBS
from anytime.cli.options import flags

WITHIN = 0.3  # CPU seconds: others may be using the machine
Command = Callable[..., Any]


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS)], ids=["overview", *VERBS])
def test_help_is_quick_and_leaves_torch_alone(words: list[str]) -> None:
    script = (
        "import sys, time; from anytime.cli import main\n"
        f"try: main({[*words, '--help']!r})\n"
        "finally: print('torch' in sys.modules, time.process_time())"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(anytime.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    *lines, last = done.stdout.splitlines()
    torch_is_there, seconds = last.split()
    assert torch_is_there == "False"
    assert len(lines) > 3
    assert float(seconds) < WITHIN


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_every_option_and_example(verb: str, command: Command) -> None:
    module = importlib.import_module(f"anytime.cli.{verb}")
    outcome = command(verb, "--help")
    assert (outcome.status, outcome.err) == (0, "")
    for name in [*flags(module.Arguments).values(), *module.EXAMPLES]:
        assert name in outcome.out
    assert "None" not in outcome.out, "an option without a default shows none"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "serve"])
def test_the_examples_run(verb: str, command: Command) -> None:
    """In their order, in one directory. Those of `serve` do not end; tests/smoke/test_server.py runs it."""
    for example in importlib.import_module(f"anytime.cli.{verb}").EXAMPLES:
        program, *words = shlex.split(example)
        outcome = command(*words)
        assert (program, outcome.status) == ("anytime", 0), outcome.err


SETTING = re.compile(r"(?<![\w.])([a-z_]+(?:\.[a-z_]+)*)=([^\s`|;…]+[^\s`|;…,.]|[0-9])")
"""A setting as `--set` takes it, such as model.prior.layers=4."""
CONFIGS = (
    ("digits", "best", (1, 28, 28)),
    ("digits", "vae", (1, 28, 28)),
    ("celeba", "best", (3, 64, 64)),
    ("vctk", "paper", (1, 15_360)),
)


def settings_in_help_and_docs() -> list[tuple[str, ...]]:
    """Return the settings in the help of `--set`, in error messages about it, and those of each command in README and docs."""
    root = Path(anytime.__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    commands = [
        words for page in pages for words in re.findall(r"(?:--set [^\s`]+=[^\s`]+ ?)+", page.read_text(encoding="utf-8"))
    ]
    shown = [tuple(word for word in shlex.split(words) if word != "--set") for words in commands]
    source = "".join(
        (Path(anytime.__file__).parent / name).read_text(encoding="utf-8") for name in ("cli/train.py", "core/config.py")
    )
    shown += [(match[0],) for match in SETTING.finditer(" ".join(re.findall(r"such as (.*?)[;\"]", source)))]
    return sorted({words for words in shown if not any("…" in word or word.startswith("KEY=") for word in words)})


def test_settings_in_help_and_docs_are_found() -> None:
    found = {word for words in settings_in_help_and_docs() for word in words}
    assert {"prior.epochs=20", "model.prior.layers=4", "prior.lr=1e-3", "model.autoencoder.length=64"} <= found


@pytest.mark.parametrize("settings", settings_in_help_and_docs(), ids=lambda settings: settings[0])
def test_settings_in_help_and_docs_work(settings: tuple[str, ...]) -> None:
    """At least one recipe accepts those of each command."""
    from anytime.core.errors import UserError
    from anytime.recipes.build import build_config

    errors = []
    for name, recipe, shape in CONFIGS:
        try:
            build_config(name, recipe, shape, "smoke", overrides=settings)  # type: ignore[arg-type]
        except UserError as error:
            errors.append(str(error))
    assert len(errors) < len(CONFIGS), errors


def test_help_of_a_verb(command: Command) -> None:
    assert command("help", "sample") == command("sample", "--help")
    assert "anytime help VERB" in command("help").out


def test_the_overview_names_every_verb(command: Command) -> None:
    for words in ([], ["help"], ["--help"], ["-h"]):
        outcome = command(*words)
        assert outcome.status == 0
        assert all(verb in outcome.out for verb in VERBS)
