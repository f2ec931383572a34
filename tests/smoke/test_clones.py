"""Two fresh clones of the repository train the same weights on a CPU, and say the same of what may change them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anytime

ROOT = Path(anytime.__file__).parents[2]
WORDS = ("train", "digits", "--scale", "smoke", "--seed", "7", "--out", "run")
OWN = {"host", "process", "started", "date"}
"""What two starts need not have in common."""


def trained_in_a_clone(folder: Path, launcher: Any) -> Path:
    """Clone the last commit, train there in a process of its own, and return the run directory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clone = subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], env=clean, capture_output=True, text=True)
    if clone.returncode:
        pytest.skip(f"the repository cannot be cloned: {clone.stderr[-200:]}")
    variables = launcher.environment | {"PYTHONPATH": str(folder / "src"), "ANYTIME_CACHE": str(folder / "cache")}
    variables.pop("PYTHONHASHSEED", None)
    done = subprocess.run(
        [sys.executable, "-m", "anytime", *WORDS], cwd=folder, env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "run"


def test_two_clones_train_the_same_weights(launcher: Any, tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    first, second = (trained_in_a_clone(tmp_path / name, launcher) for name in ("one", "a longer name/two"))
    for name in ("model/model.safetensors", "model/config.json", "config.json", "errors.json", "samples/by-length.png"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    one, two = (json.loads((run / "environment.json").read_text())["starts"][0] for run in (first, second))
    assert {key: one[key] for key in one.keys() - OWN} == {key: two[key] for key in two.keys() - OWN}
    assert one["commit"] is not None and not one["commit"].endswith("-dirty")
