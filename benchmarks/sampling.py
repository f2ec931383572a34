"""Seconds to draw and decode samples, by code length and batch, with the paper's MNIST and CIFAR-10 shapes and random weights.

    python benchmarks/sampling.py [OUT.json]          a table, then one JSON line

Absolute times hold for the machine that gave them only; compare rows of one run.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch

from anytime.experiments.results import Results, Row
from anytime.model import AnytimeModel, pick_device
from anytime.sampling.budget import code_count
from anytime.training.folder import environment
from anytime.training.recipes import paper

FRACTIONS = (0.25, 0.5, 1.0)
REPEATS = 3


def measure(model: AnytimeModel, batch: int, fraction: float) -> Row:
    """Median seconds of a few calls, after one that warms up."""
    model.sample(batch, fraction=fraction)
    times = []
    for repeat in range(REPEATS):
        began = time.perf_counter()
        model.sample(batch, seed=repeat, fraction=fraction)
        times.append(time.perf_counter() - began)
    median = statistics.median(times)
    codes = code_count(model.length, fraction=fraction)
    return {"batch": batch, "fraction": fraction, "codes": codes, "seconds": median, "per_second": batch / median}


def main() -> None:
    device = pick_device()
    rows: list[Row] = []
    for name, shape in (("mnist", (1, 28, 28)), ("cifar10", (3, 32, 32))):
        torch.manual_seed(0)
        model = AnytimeModel(paper(name, shape).model).to(device)
        for batch in (1, 16):
            for fraction in FRACTIONS:
                row = {"series": name, **measure(model, batch, fraction)}
                rows.append(row)
                print(f"{name:<8} batch {batch:>3}  {row['codes']:>3} codes  {row['seconds'] * 1000:9.1f} ms")
    results = Results(
        "sampling", "random-weights", "python benchmarks/sampling.py", environment(device), f"{REPEATS} repeats", rows, []
    )
    if len(sys.argv) > 1:
        results.write(Path(sys.argv[1]))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
