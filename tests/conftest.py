"""Shared by all tests: shapes in signatures are checked at run time; one thread each, as tests run in parallel."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

if importlib.util.find_spec("triton") is not None:
    import anytime.sampling.kernels.triton_kernels  # noqa: F401  # before the hook: Triton compiles what it is given, wrappers included

install_import_hook("anytime", "beartype.beartype")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", metavar="FILE", help="write what passed and failed, with commit and hardware, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--record"):
        config.pluginmanager.register(Record(Path(target)))


class Record:
    """The outcome of every test of a run, for suites that continuous integration does not run.

    A record that is there keeps the rows of tests that are not run this time. Each row names the commit it was measured at.
    """

    def __init__(self, target: Path) -> None:
        self.target, self.rows = target, []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            row = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2)}
            self.rows.append(row | dict(report.user_properties))  # what a test measured, by `record_property`

    def pytest_sessionfinish(self) -> None:
        import torch

        from anytime.core.environment import environment
        from anytime.core.storage import write_json

        found = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        ran = {row["test"] for row in self.rows}
        rows = [row for row in earlier_rows(self.target) if row["test"] not in ran]
        rows += [{"commit": found["commit"], **row} for row in self.rows]
        failed = sum(row["outcome"] == "failed" for row in rows)
        write_json(self.target, {"environment": found, "failed": failed, "rows": sorted(rows, key=lambda row: row["test"])})


def earlier_rows(target: Path) -> list[dict[str, Any]]:
    """Return the rows of a record that are of tests we still have, each with its commit; none if there is no record."""
    if not target.exists():
        return []
    record = json.loads(target.read_text(encoding="utf-8"))
    return [{"commit": record["environment"]["commit"], **row} for row in record["rows"] if is_there(row["test"])]


def is_there(test: str) -> bool:
    """Return whether a recorded test is one that we still have."""
    path, _, name = test.partition("::")
    source = Path(__file__).parents[1] / path
    return source.is_file() and f"def {name.partition('[')[0]}(" in source.read_text(encoding="utf-8")
