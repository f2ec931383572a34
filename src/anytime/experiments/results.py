"""One tidy format for every experiment's numbers, in results/<experiment>/<dataset>.json; figures are drawn from it alone."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.config import from_dict, read_json
from anytime.errors import UserError
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


def read(path: Path) -> Results:
    """Results as `write` left them."""
    data = read_json(path)
    try:
        verdicts = [from_dict(Verdict, verdict, f"{path}: verdict") for verdict in data.pop("verdicts")]
        return Results(verdicts=verdicts, **data)
    except (KeyError, TypeError):
        raise UserError(f"{path} is no results file of this version; run its experiment again") from None


def series(rows: list[Row], name: str, key: str) -> dict[float, float]:
    """One curve: fraction -> value, for the rows of a series."""
    return {row["fraction"]: row[key] for row in rows if row["series"] == name}


def recorded_command(module: str) -> str:
    """The command as a user would type it; where its results were put is no part of it."""
    words = sys.argv[1:]
    if "--out" in words:
        place = words.index("--out")
        del words[place : place + 2]
    return shlex.join(["python", "-m", module, *words])
