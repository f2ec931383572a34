"""One tidy format for every experiment's numbers, in results/<experiment>/<dataset>.json; figures are drawn from it alone."""

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
    """A claim and whether the numbers bear it out; None where they cannot decide."""

    claim: str
    holds: bool | None
    evidence: str
    paper: str = ""  # what the paper says about it


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
        path = results_file(folder, self.experiment, self.dataset)
        write_json(path, asdict(self))
        return path


def results_file(folder: Path, experiment: str, dataset: str) -> Path:
    return folder / experiment / f"{dataset}.json"


def read(path: Path) -> Results:
    """Results as `write` left them."""
    data = read_json(path)
    try:
        verdicts = [from_dict(Verdict, verdict, f"{path}: verdict") for verdict in data.pop("verdicts")]
        return Results(verdicts=verdicts, **data)
    except (KeyError, TypeError):
        raise UserError(f"{path} is no results file of this version; run its experiment again") from None


def write_figure(path: Path, figure: Any) -> Path:
    """A matplotlib figure as PNG beside the results file that it was drawn from, whole or not at all."""
    target = path.with_suffix(".png")
    write_atomic(target, plot_png(figure))
    return target


def curve(rows: Sequence[Row], name: str, across: str, value: str) -> dict[Any, float]:
    """One curve of a series, where it was measured -> its value, averaged over the seeds.

    >>> curve([{"series": "a", "codes": 1, "error": 2.0, "seed": s} for s in (0, 1)], "a", "codes", "error")
    {1: 2.0}
    """
    found: dict[Any, list[float]] = {}
    for row in rows:
        if row["series"] == name and across in row and row.get(value) is not None:
            found.setdefault(row[across], []).append(row[value])
    return {place: mean(values) for place, values in found.items()}


def combine_seeds(each: Sequence[bool], together: bool) -> bool | None:
    """A claim by several seeds: as all of them together say, undecided where they say it holds and one of them denies it.

    >>> combine_seeds([True, True], True), combine_seeds([True, False], True), combine_seeds([True, False], False)
    (True, None, False)
    """
    return together if all(each) or not together else None
