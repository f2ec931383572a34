"""Shared by all tests: shapes in signatures are checked at run time; one thread each, as tests run in parallel."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import importlib.util
from pathlib import Path

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
    """The outcome of every test of a run, for suites that continuous integration does not run."""

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

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        failed = sum(row["outcome"] == "failed" for row in self.rows)
        write_json(self.target, {"environment": environment(device), "failed": failed, "rows": self.rows})
