"""The results format of experiments and benchmarks: results/<experiment>/<dataset>.json, the only source of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError
from anytime.core.plots import plot_png
from anytime.core.storage import write_atomic, write_json

Row = dict[str, Any]
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and whether it holds; None if the numbers cannot decide."""

    claim: str
    holds: bool | None
    evidence: str
    paper: str = ""  # what the paper says about it


@dataclass(frozen=True, slots=True)
class Results:
    """The numbers of one experiment on one dataset, with their provenance."""

    experiment: str
    dataset: str
    command: str
    environment: dict[str, Any]
    schedule: str
    rows: list[Row]
    verdicts: list[Verdict]

    def write(self, folder: Path) -> Path:
        """Write the results below `folder` and return the path of the file."""
        path = results_file(folder, self.experiment, self.dataset)
        write_json(path, asdict(self))
        return path


def results_file(folder: Path, experiment: str, dataset: str) -> Path:
    """Return the path of a results file."""
    return folder / experiment / f"{dataset}.json"


def read(path: Path) -> Results:
    """Read a results file."""
    data = read_json(path)
    try:
        verdicts = [from_dict(Verdict, verdict, f"{path}: verdict") for verdict in data.pop("verdicts")]
        return Results(verdicts=verdicts, **data)
    except (KeyError, TypeError):
        raise UserError(f"{path} is not a results file of this version; run its experiment again") from None


def write_figure(path: Path, figure: Any) -> Path:
    """Write a matplotlib figure as PNG beside its results file."""
    target = path.with_suffix(".png")
    write_atomic(target, plot_png(figure))
    return target


def curve(rows: Sequence[Row], name: str, across: str, value: str) -> dict[Any, float]:
    """Return one curve of a series as {x: value}, averaged over the seeds.

    >>> curve([{"series": "a", "codes": 1, "error": 2.0, "seed": s} for s in (0, 1)], "a", "codes", "error")
    {1: 2.0}
    """
    found: dict[Any, list[float]] = {}
    for row in rows:
        if row["series"] == name and across in row and row.get(value) is not None:
            found.setdefault(row[across], []).append(row[value])
    return {x: mean(values) for x, values in found.items()}


def combine_seeds(each: Sequence[bool], together: bool) -> bool | None:
    """Combine the verdicts of several seeds. A claim that holds on average but not for every seed is undecided.

    >>> combine_seeds([True, True], True), combine_seeds([True, False], True), combine_seeds([True, False], False)
    (True, None, False)
    """
    return together if all(each) or not together else None
