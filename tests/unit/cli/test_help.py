"""Every verb explains itself at once: before torch is imported."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anytime
from anytime.cli import VERBS
from anytime.cli.options import flags

WITHIN = 0.5  # seconds
Command = Callable[..., Any]


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS)], ids=["overview", *VERBS])
def test_help_is_quick_and_leaves_torch_alone(words: list[str]) -> None:
    """The best of three: others may be using the machine."""
    script = (
        f"import sys; from anytime.cli import main\ntry: main({[*words, '--help']!r})\nfinally: print('torch' in sys.modules)"
    )
    source = str(Path(anytime.__file__).parents[1])
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        environment = os.environ | {"PYTHONPATH": source}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        seconds.append(time.monotonic() - started)
        assert done.stderr == ""
        *lines, torch_is_there = done.stdout.splitlines()
        assert torch_is_there == "False"
        assert len(lines) > 3
        if seconds[-1] < WITHIN:
            break
    assert min(seconds) < WITHIN


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
CONFIGS = (("digits", "best", (1, 28, 28)), ("digits", "vae", (1, 28, 28)), ("vctk", "paper", (1, 15_360)))


def settings_in_help_and_docs() -> list[str]:
    """Return the settings in the help of `--set`, in error messages about it, and after `--set` in README and docs."""
    root = Path(anytime.__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    shown = [word for page in pages for word in re.findall(r"--set (\S+=[^\s`]+)", page.read_text(encoding="utf-8"))]
    source = "".join(
        (Path(anytime.__file__).parent / name).read_text(encoding="utf-8") for name in ("cli/train.py", "core/config.py")
    )
    shown += [match[0] for match in SETTING.finditer(" ".join(re.findall(r"such as (.*?)[;\"]", source)))]
    return sorted({word for word in shown if "…" not in word and not word.startswith("KEY=")})


def test_settings_in_help_and_docs_are_found() -> None:
    assert {"prior.epochs=20", "model.prior.layers=4", "prior.lr=1e-3"} <= set(settings_in_help_and_docs())


@pytest.mark.parametrize("setting", settings_in_help_and_docs())
def test_settings_in_help_and_docs_work(setting: str) -> None:
    """At least one recipe accepts each."""
    from anytime.core.errors import UserError
    from anytime.recipes.build import build_config

    errors = []
    for name, recipe, shape in CONFIGS:
        try:
            build_config(name, recipe, shape, "smoke", overrides=[setting])  # type: ignore[arg-type]
        except UserError as error:
            errors.append(str(error))
    assert len(errors) < len(CONFIGS), errors


def test_the_overview_names_every_verb(command: Command) -> None:
    for words in ([], ["help"], ["--help"], ["-h"]):
        outcome = command(*words)
        assert outcome.status == 0
        assert all(verb in outcome.out for verb in VERBS)
