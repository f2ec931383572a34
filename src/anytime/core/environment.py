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
    """Return the commit of a checkout. A copy without its git folder may name it in ANYTIME_COMMIT."""
    if named := os.environ.get("ANYTIME_COMMIT"):
        return named
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
