"""The time from `import anytime` to the first image, each measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import anytime

PROGRAM = """
import json, sys, time
began = time.perf_counter()
import anytime
from anytime.core.openmp import set_waiting
set_waiting()  # as `anytime.load` does before it imports torch
torch_began = time.perf_counter()
import torch
torch_seconds = time.perf_counter() - torch_began
torch.set_num_threads(int(sys.argv[2]))
loading = time.perf_counter()
model = anytime.load(sys.argv[1], "cpu")
sampling = time.perf_counter()
codes = model.sample(1).codes.shape[1]
ended = time.perf_counter()
seconds = {"seconds": ended - began - torch_seconds, "load_seconds": sampling - loading, "sample_seconds": ended - sampling}
print(json.dumps({"codes": codes, "torch_seconds": torch_seconds, **seconds}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Medians of several processes."""

    codes: int
    repeats: int
    seconds: float  # from the import to the first image, without those of `import torch`
    load_seconds: float  # of them, `anytime.load`
    sample_seconds: float  # of them, `model.sample(1)` with all codes
    torch_seconds: float


def start_up(model: str | Path, *, repeats: int, threads: int) -> StartUp:
    """Measure a model's start-up on a CPU; a first process, which is not counted, reads all files once."""
    package = str(Path(anytime.__file__).parents[1])
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as installed
    variables["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", PROGRAM, str(model), str(threads)]
    found = []
    for _ in range(1 + repeats):
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout))
    times = {name: median(run[name] for run in found[1:]) for name in found[0] if name != "codes"}
    return StartUp(codes=found[0]["codes"], repeats=repeats, **times)
