"""The environment of a measurement: versions, hardware and commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from anytime import __version__
from anytime.core import distributed


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions, hardware and commit, for files that hold numbers."""
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {
        "anytime": __version__,
        "commit": _commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "hardware": hardware,
        "ranks": distributed.world_size(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _commit() -> str | None:
    """Return the commit of a checkout that tracks this package. A copy without its git folder may name it in ANYTIME_COMMIT."""
    if named := os.environ.get("ANYTIME_COMMIT"):
        return named
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # an installed copy may lie inside somebody's repository
        return _git("describe", "--always", "--dirty", "--exclude", "*")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    """Run git in the directory of this file. A git hook exports the variables of its own repository: they are left out."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
