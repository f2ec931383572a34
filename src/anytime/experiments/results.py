"""One tidy format for every experiment's numbers, in results/<experiment>/<dataset>.json; figures are drawn from it alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.storage import write_json

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and whether the numbers bear it out; None where they cannot decide."""

    claim: str
    holds: bool | None
    evidence: str


@dataclass(frozen=True, slots=True)
class Results:
    experiment: str
    dataset: str
    command: str
    environment: dict[str, Any]
    schedule: str
    rows: list[Row]
    verdicts: list[Verdict]

    def write(self, folder: Path) -> Path:
        path = folder / self.experiment / f"{self.dataset}.json"
        write_json(path, asdict(self))
        return path


def series(rows: list[Row], name: str, key: str) -> dict[float, float]:
    """One curve: fraction -> value, for the rows of a series."""
    return {row["fraction"]: row[key] for row in rows if row["series"] == name}
