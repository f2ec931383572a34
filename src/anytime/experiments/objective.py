"""Eq. 6 as printed, in sums of squares, against the mean of each term; two losses that select the epoch."""

from __future__ import annotations

from functools import partial
from typing import Any

from anytime.core.results import Results, Row, Verdict
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_figure, fid_label
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.runner import Runner
from anytime.experiments.statistics import mean_over, verdict_below
from anytime.metrics.quality import distance_name

SAMPLES = 50_000
SERIES = {
    "sums, by total": "sums",
    "sums, by reconstruction": "sums-by-reconstruction",
    "means, by total": "ordered",
    "means, by reconstruction": "means-by-reconstruction",
}
"""Reduction and selecting loss -> variant."""


def measure(runner: Runner) -> list[Row]:
    """Return FID by code length of all four variants."""
    return FIDEvaluator(runner, SAMPLES).measure_series(SERIES)


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide whether means give better samples than sums, for each loss that selects the epoch."""
    average = partial(mean_over, rows, value=distance_name(rows), fraction=PAPER_FRACTIONS)
    return [
        verdict_below(
            f"{fid_label(rows)}: means below sums, on average over the fractions, the epoch selected by {loss}",
            "Eq. 6 is printed with sums",
            {"average": (average(f"means, by {loss}"), average(f"sums, by {loss}"))},
        )
        for loss in ("total", "reconstruction")
    ]


def draw(results: Results) -> Any:
    """Draw FID by code length."""
    return fid_figure(results, dict(zip(SERIES, ("o-", "o--", "s-", "s--"), strict=True)))
