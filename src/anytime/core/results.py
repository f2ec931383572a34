"""One tidy format for every experiment's numbers: results/<experiment>/<dataset>.json."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError
from anytime.core.storage import write_atomic, write_json

Row = dict[str, Any]
MEASURED = "measured"
"""The folder of cached measurements: in `--runs-dir`, where they are stored, and in `--out`, where finished ones are kept."""
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

    A row with the key `png` is an image, which the figure shows. One with `file` and `base64` is a file, which is written to
    the folder of the dataset. The results file holds the numbers only.
    """

    experiment: str
    dataset: str
    command: str
    environment: dict[str, Any]
    schedule: str
    rows: list[Row]
    verdicts: list[Verdict]

    def write(self, folder: Path) -> Path:
        """Write the numbers to the file of the experiment and dataset in `folder`, and files that rows hold beside it."""
        path = results_file(folder, self.experiment, self.dataset)
        for row in self.rows:
            if "base64" in row:
                write_atomic(path.with_suffix("") / Path(row["file"]).name, base64.b64decode(row["base64"]))
        write_json(path, asdict(replace(self, rows=[row for row in self.rows if not {"png", "base64"} & row.keys()])))
        return path


def results_file(folder: Path, experiment: str, dataset: str) -> Path:
    """Return the path of an experiment's results file."""
    return folder / experiment / f"{dataset}.json"


def results_files(folder: Path) -> list[Path]:
    """Return the results files in a folder, without the measurements that are kept beside them."""
    return [path for path in sorted(folder.glob("*/*.json")) if path.parent.name != MEASURED]


def read(path: Path) -> Results:
    """Read a results file."""
    data = read_json(path)
    try:
        verdicts = [from_dict(Verdict, verdict, f"{path}: verdict") for verdict in data.pop("verdicts")]
        results = Results(verdicts=verdicts, **data)
    except (KeyError, TypeError):
        raise UserError(f"{path} is not a results file of this version; run its experiment again") from None
    texts = (results.experiment, results.dataset, results.command, results.schedule)
    if not all(isinstance(text, str) for text in texts) or not isinstance(results.environment, dict):
        raise UserError(f"{path} is not a results file of this version; run its experiment again")
    check_rows(results.rows, path)
    return results


def check_rows(rows: Any, path: Path) -> list[Row]:
    """Return the rows of a results file; refuse anything but a list of JSON objects."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} has rows that are not JSON objects; restore it or measure again")
    return rows


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
