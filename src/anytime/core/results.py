"""One tidy format for every experiment's numbers: results/<experiment>/<dataset>.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError
from anytime.core.storage import write_json

Row = dict[str, Any]
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and whether the numbers support it. `holds` is None where they cannot decide."""

    claim: str
    holds: bool | None
    evidence: str
    paper: str = ""  # what the paper says about it


@dataclass(frozen=True, slots=True)
class Results:
    """The rows of one experiment on one dataset, how they were made, and what follows from them.

    A row with the key `png` is an image. The figure shows it; the file holds the numbers only.
    """

    experiment: str
    dataset: str
    command: str
    environment: dict[str, Any]
    schedule: str
    rows: list[Row]
    verdicts: list[Verdict]

    def write(self, folder: Path) -> Path:
        """Write all but the images to the file of the experiment and dataset in `folder`."""
        path = results_file(folder, self.experiment, self.dataset)
        write_json(path, asdict(replace(self, rows=[row for row in self.rows if "png" not in row])))
        return path


def results_file(folder: Path, experiment: str, dataset: str) -> Path:
    """Return the path of an experiment's results file."""
    return folder / experiment / f"{dataset}.json"


def read(path: Path) -> Results:
    """Read a results file."""
    data = read_json(path)
    try:
        verdicts = [from_dict(Verdict, verdict, f"{path}: verdict") for verdict in data.pop("verdicts")]
        return Results(verdicts=verdicts, **data)
    except (KeyError, TypeError):
        raise UserError(f"{path} is not a results file of this version; run its experiment again") from None


def select(rows: Sequence[Row], **where: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in where.items())]


def column(rows: Sequence[Row], key: str) -> list[Any]:
    """Return one value of every row."""
    return [row[key] for row in rows]


def curve(rows: Sequence[Row], name: str, across: str, value: str) -> dict[Any, float]:
    """Return one series as a curve: each place across -> the value there, averaged over the seeds.

    >>> curve([{"series": "a", "codes": 1, "error": 2.0, "seed": s} for s in (0, 1)], "a", "codes", "error")
    {1: 2.0}
    """
    found: dict[Any, list[float]] = {}
    for row in rows:
        if row["series"] == name and across in row and row.get(value) is not None:
            found.setdefault(row[across], []).append(row[value])
    return {place: mean(values) for place, values in found.items()}
