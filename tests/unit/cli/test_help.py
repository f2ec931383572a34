"""Every verb explains itself at once: before torch is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anytime
from anytime.cli import VERBS

WITHIN = 0.5  # seconds


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
def test_help_names_every_option(verb: str, command: Callable[..., Any]) -> None:
    outcome = command(verb, "--help")
    assert outcome.status == 0
    assert outcome.err == ""
    options = {
        "data": ["list|get", "NAME"],
        "train": ["NAME", "--recipe", "--truncation", "--layout", "--data", "--size", "--out", "--scale", "--set", "--seed"],
        "sample": [
            "MODEL",
            "-n",
            "--codes",
            "--fraction",
            "--quality",
            "--within",
            "--prefix",
            "--temperature",
            "--top-k",
            "--top-p",
            "--engine",
            "--precision",
            "--seed",
            "--out",
        ],
        "reconstruct": ["MODEL", "FILES", "--codes", "--fraction", "--quality", "--out"],
        "evaluate": [
            "MODEL",
            "--samples",
            "--fractions",
            "--inception",
            "--dataset",
            "--data",
            "--classifier",
            "--scale",
            "--seed",
            "--out",
        ],
        "reproduce": [
            "EXPERIMENT",
            "--dataset",
            "--scale",
            "--data",
            "--inception",
            "--runs-dir",
            "--samples",
            "--seed",
            "--seeds",
            "--minutes",
            "--out",
        ],
        "bench": ["sampling", "MODEL", "--batches", "--every", "--engines", "--hf-baseline", "--repeats", "--threads", "--out"],
        "info": ["MODEL", "--check"],
    }
    for option in [*options.get(verb, []), "--json", "--device"]:
        assert option in outcome.out


def test_the_overview_names_every_verb(command: Callable[..., Any]) -> None:
    for words in ([], ["help"], ["--help"], ["-h"]):
        outcome = command(*words)
        assert outcome.status == 0
        assert all(verb in outcome.out for verb in VERBS)
