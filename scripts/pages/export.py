"""Tables of scripts/measure_export.py and of the records of exported models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from anytime.core.results import Row, select
from pages.markdown import table

MODELS = ("mnist", "cifar10")
FOLDER = "benchmarks/results/export"
NAMES = {
    "eager": "this package",
    "compiled": "this package, engine `compiled`",  # of measurements before the packed engine
    "packed": "this package, engine `packed`",
    "onnx": "`--to onnx`",
    "aoti": "`--to aoti`",
}
ROWS, BROWSER = "tests/records/export.json", "tests/records/browser.json"
STEADY = 3
"""Where the median request takes more than this many times the fastest, other programs decided the time."""
CASE = re.compile(r"::(?P<test>\w+)\[(?P<case>[\w-]+)\]$")


def sizes(root: Path) -> str:
    """Bytes of the networks, and seconds from the start of a process to its first sample."""
    lines = []
    for model in _measured(root):
        rows = _results(root, model)["rows"]
        for row in rows:
            if "bytes" not in row:
                continue
            (start,) = (one for one in select(rows, series=row["series"]) if "start_seconds" in one)
            times = [f"{start['start_seconds']:.2f}", f"{start['start_speedup']:.1f}"]
            lines.append([model, NAMES[row["series"]], f"{row['bytes'] / 1e6:.2f}", *times])
    return table(["model", "runtime", "weights, MB", "start to first sample, s", "times as fast"], lines)


def steps(root: Path) -> str:
    """Milliseconds of a step, and how many times as fast as the eager engine it is."""
    measured = {model: [row for row in _results(root, model)["rows"] if "step_ms" in row] for model in _measured(root)}
    found = {row["series"] for rows in measured.values() for row in rows}
    names, lines = [name for name in NAMES if name in found], []
    for model, rows in measured.items():
        for threads in sorted({row["threads"] for row in rows}):
            for batch in sorted({row["batch"] for row in rows}):
                own = {row["series"]: row for row in select(rows, threads=threads, batch=batch)}
                lines.append([model, str(threads), str(batch), *(_step(own.get(name), own["eager"]) for name in names)])
    return table(["model", "threads", "rows", "eager", *(NAMES[name] for name in names[1:])], lines)


def _step(row: Row | None, reference: Row) -> str:
    if row is None or row["request_p50_ms"] > STEADY * row["request_ms"]:
        return "–"
    has_ratio = row is not reference and _step(reference, reference) != "–"
    ratio = f" ({row['step_speedup']:.2f} ×)" if has_ratio else ""
    return f"{row['step_ms']:.2f} ms{ratio}"


def rows(root: Path) -> str:
    """Rows of exported models, in Python and in the browser, that are equal to the library's."""
    lines = []
    for file, names in ((ROWS, NAMES), (BROWSER, {})):
        for case, row in _cases(root, file, "rows"):
            model, _, runtime = case.partition("-")
            found = row["rows"] if isinstance(row["rows"], dict) else row
            name = names.get(runtime, "`--to web`, Chromium")
            lines.append([model, name, f"{found['rows']:,}", f"{found['equal']:,}", f"{found['largest_gap']:.1g}"])
    return table(["model", "runtime", "rows", "equal", "largest gap at a difference"], lines)


def browser(root: Path) -> str:
    """The first sample and a deadline of 100 ms in the browser."""
    lines = []
    deadlines = dict(_cases(root, BROWSER, "deadline_100_ms"))
    for model, row in _cases(root, BROWSER, "first_sample_ms"):
        first, kept = row["first_sample_ms"], deadlines[model]["deadline_100_ms"]
        times = [f"{first['p50']} ms", f"{first['p95']} ms", f"{kept['kept']} of {kept['clicks']}", f"{kept['p50']} ms"]
        loads = f"{first['load_average']:.1f} and {kept['load_average']:.1f}"
        lines.append([model, *times, f"{kept['codes']:.1f}", f"{kept['rows']:.1f}", loads])
    header = ["model", "first sample, p50", "p95", "100 ms kept", "click to sample, p50", "codes", "samples", "load averages"]
    return table(header, lines)


def _cases(root: Path, file: str, key: str) -> list[tuple[str, Row]]:
    """Return the rows of a record that measured something, by the parameter of their test."""
    found = []
    for row in _read(root / file)["rows"]:
        match = CASE.search(row["test"])
        if match and key in row and match["case"] != "software-adapter":
            found.append((match["case"], row))
    return found


def _measured(root: Path) -> list[str]:
    """Return the bundled models that have been measured."""
    return [model for model in MODELS if (root / FOLDER / f"{model}.json").exists()]


def _results(root: Path, model: str) -> dict[str, Any]:
    return _read(root / FOLDER / f"{model}.json")


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data
