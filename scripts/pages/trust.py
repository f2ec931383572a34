"""Tables of SECURITY.md and docs/training.md: what fuzzing read, and what was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anytime.core.errors import UserError
from pages.markdown import table

FUZZING = "tests/records/fuzz*.json"
BULK, TRAINING, MACHINES = "tests/records/bulk.json", "tests/records/kills.json", "tests/records/machines.json"


def fuzzing(root: Path) -> str:
    """Damaged inputs of every parser, with the slowest one and the memory of all."""
    rows = [row for path in sorted(root.glob(FUZZING)) for row in _rows(path) if "inputs" in row]
    lines = [_fuzzed(row) for row in sorted(rows, key=lambda row: "coverage_guided" in row["test"])]
    seconds = sum(row["fuzzing_seconds"] for row in rows)
    total = ["all", f"{sum(row['inputs'] for row in rows):,}", "", f"{seconds:,.0f}", "", ""]
    return table(["parser", "inputs", "accepted", "time, s", "slowest, ms", "memory, MiB"], [*lines, total])


def _fuzzed(row: dict[str, Any]) -> list[str]:
    name = row["test"].partition("[")[2].rstrip("]")
    if "coverage_guided" in row["test"]:
        name = f"{name.partition('-')[0]}, by atheris"
    optional = (f"{row[key]:,}" if key in row else "–" for key in ("accepted", "slowest_input_ms", "memory_mib"))
    accepted, slowest, memory = optional
    return [name, f"{row['inputs']:,}", accepted, f"{row['fuzzing_seconds']:,.0f}", slowest, memory]


def kills(root: Path) -> str:
    """Processes killed with -9 while they sample or train."""
    bulk = [row for row in _rows(root / BULK) if "kills" in row]
    lines = [["bulk sampling, 1 to 3 ranks", str(len(row["kills"])), "all shards identical", row["commit"]] for row in bulk]
    for row in _rows(root / TRAINING):
        if "kills" in row:
            recipe = row["test"].partition("[")[2].rstrip("]")
            lines.append([f"training, recipe `{recipe}`", str(row["kills"]), "model and metrics identical", row["commit"]])
    for row in _rows(root / MACHINES):
        if "ended_after_seconds" in row:
            what = row["test"].partition("::test_")[2].replace("_", " ")
            lines.append([f"2 × 2 ranks: {what}", "1", f"all ended after {row['ended_after_seconds']:.0f} s", row["commit"]])
        if "steps_at_kills" in row:
            how = row["test"].partition("[")[2].rstrip("]")
            count = str(len(row["steps_at_kills"]))
            lines.append([f"2 × 2 ranks: torchrun's restarts, {how}", count, "weights identical", row["commit"]])
    return table(["what", "kills", "outcome", "commit"], lines)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the tests of a record, each with its commit; refuse a record of failed tests."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["failed"]:
        raise UserError(f"{path} has {record['failed']} failed tests; mend them and run them again with --record={path}")
    commit = record["environment"]["commit"]
    return [{"commit": commit, **row} for row in record["rows"] if row["outcome"] == "passed"]
