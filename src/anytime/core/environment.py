"""The environment of a measurement or of a training: versions, hardware, commit, and what else may change a number."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from anytime import __version__
from anytime.core import distributed

LIBRARIES = ("numpy", "safetensors", "pillow", "soundfile", "soxr", "triton", "onnxruntime")
"""Libraries beside torch that read data or compute."""
VARIABLES = (
    "OMP_",
    "GOMP_",
    "MKL_",
    "KMP_",
    "ONEDNN_",
    "DNNL_",
    "CUDA_",
    "CUBLAS_",
    "NCCL_",
    "GLOO_",
    "TORCH",
    "PYTORCH_",
    "LOCAL_WORLD_SIZE",
)
"""Beginnings of environment variables that change how numbers are computed."""


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


def training_environment(device: torch.device) -> dict[str, Any]:
    """Return `environment` and what else may change a bit of trained weights, so that any difference can be explained."""
    return {
        **environment(device),
        "source": source_digest(),
        "libraries": {name: version for name in LIBRARIES if (version := _version(name)) is not None},
        "cpu": {"name": _cpu_name(), "cores": os.cpu_count(), "capability": torch.backends.cpu.get_cpu_capability()},
        "threads": torch.get_num_threads(),
        "cuda": None if device.type != "cuda" else {"version": torch.version.cuda, "cudnn": torch.backends.cudnn.version()},
        "math": {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        },
        "variables": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(VARIABLES)},
        "host": platform.node(),
        "process": os.getpid(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }


def source_digest() -> str:
    """Return a SHA-256 of the package's Python files: it names the code where a commit is missing or has local changes."""
    root, sha = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sha.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return sha.hexdigest()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    """Return the name of the processor: other processors run other kernels, which round otherwise."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


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
