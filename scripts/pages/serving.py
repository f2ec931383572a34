"""Tables of `anytime bench serving` and of deadlines beside busy processes."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from anytime.core.results import Row, select
from pages.markdown import table

LOADS, DEADLINES = (0.5, 1.0, 2.0, 4.0, 8.0), (0.1, 0.5)
SERVING = "benchmarks/results/serving/mnist-cpu.json"
SERVING_GPU = "benchmarks/results/serving/cifar10-cuda.json"
FILES = (
    ("raised", "benchmarks/results/deadlines/mnist-cpu.json"),
    ("ordinary", "benchmarks/results/deadlines/mnist-cpu-ordinary.json"),
)
"""Deadlines beside busy processes, by priority of the sampling thread."""


def serving(root: Path, file: str = SERVING) -> str:
    """Deadlines kept, refusals and codes by load, with adaptation and without."""
    rows = _rows(root / file)
    measured = [deadline for deadline in DEADLINES if select(rows, deadline=deadline, nominal=LOADS[0])]
    header = ["deadline", "load", "answered in time", "refused", "codes", "p99", "in time without adaptation"]
    lines = [sorted((_load(rows, deadline, load) for load in LOADS), key=lambda line: float(line[1])) for deadline in measured]
    return table(header, [line for own in lines for line in own])


def _load(rows: list[Row], deadline: float, load: float) -> list[str]:
    (own,), (fixed,) = (
        select(rows, series=series, arrivals="poisson", nominal=load, deadline=deadline) for series in ("adaptive", "fixed")
    )
    codes, p99 = f"{own['codes']:.1f}", f"{1000 * own['seconds_p99']:.0f} ms"
    shares = [f"{own['attainment']:.1%}", f"{own['refused']:.1%}"]
    return [f"{1000 * deadline:.0f} ms", f"{own['load']:.2f}", *shares, codes, p99, f"{fixed['attainment']:.1%}"]


def slo(root: Path, file: str = SERVING) -> str:
    """SLO attainment at full load by deadline, a multiple of the time of a request alone."""
    rows, lines, scales = _rows(root / file), list[list[str]](), list[str]()
    for series, name in (("adaptive", "with adaptation"), ("fixed", "without")):
        own = [row for row in select(rows, series=series, load=1.0) if "slo_scale" in row]
        scales = [f"{row['slo_scale']:g}" for row in own]
        lines.append([name, *(f"{row['attainment']:.1%}" for row in own)])
    return table(["SLO scale", *scales], lines)


def deadlines(root: Path) -> str:
    """Deadlines kept beside busy processes, with a raised priority and without."""
    lines = []
    for priority, file in FILES:
        rows = _rows(root / file)
        for busy in (0, 1, 2):
            own = select(rows, series="within", busy=busy)
            late = sorted(row["seconds"] - row["within"] for row in own)
            full = median(row["seconds"] for row in select(rows, series="full", busy=busy))
            (stall,) = select(rows, series="stall", busy=busy)
            kept, p99 = sum(value <= 0 for value in late) / len(late), late[int(0.99 * len(late))]
            times = [f"{1000 * value:.1f} ms" for value in (max(0.0, p99), stall["seconds"], full)]
            lines.append([priority, str(busy), f"{kept:.1%}", *times])
    header = ["priority", "busy processes", "deadlines kept", "p99 late by", "longest stall", "all codes"]
    return table(header, lines)


def _rows(path: Path) -> list[Row]:
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows
