"""Eq. 6 as printed, in sums of squares, against each term averaged on its own; the kept epoch selected by two losses."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from anytime.core.results import Results, Row, Verdict, read, write_figure
from anytime.evaluation.image_summary import distance_name
from anytime.experiments.fid_evaluator import FID_EXPERIMENTS, FID_FRACTIONS, FIDEvaluator, label, plot, sample_count
from anytime.experiments.runner import Runner
from anytime.experiments.statistics import all_below, mean_over

SAMPLES = 50_000
SERIES = {
    "sums, by total": "sums",
    "sums, by reconstruction": "sums-by-reconstruction",
    "means, by total": "ordered",
    "means, by reconstruction": "means-by-reconstruction",
}
"""Reduction and selecting loss, and the kind of run."""


def compute(runner: Runner) -> Results:
    """FID by code length of all four variants."""
    s, evaluator = runner.context, FIDEvaluator(runner, sample_count(runner.context, SAMPLES))
    rows = list[Row]()
    runner.announce([(variant, seed) for seed in s.seeds for variant in SERIES.values()], shared_with=FID_EXPERIMENTS)
    for seed in s.seeds:
        for series, variant in SERIES.items():
            rows += [{**row, "series": series} for row in evaluator.evaluate(variant, seed)]
    return runner.results(rows, decide(rows), [evaluator.note(SAMPLES)])


def decide(rows: list[Row]) -> list[Verdict]:
    """Whether averaging each term gives the better samples, whichever loss selects the epoch."""
    average = partial(mean_over, rows, value=distance_name(rows), fraction=FID_FRACTIONS)
    return [
        Verdict(
            f"{label(rows)}: means below sums, on average over the fractions, the epoch selected by {loss}",
            *all_below({"average": (average(f"means, by {loss}"), average(f"sums, by {loss}"))}),
            "Eq. 6 is printed with sums",
        )
        for loss in ("total", "reconstruction")
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for series, style in zip(SERIES, ("o-", "o--", "s-", "s--"), strict=True):
        plot(axes, results.rows, series, style)
    axes.set(xlabel="fraction of the codes", ylabel=label(results.rows), title=results.dataset, ylim=(0, None))
    axes.legend()
    return write_figure(path, figure)
