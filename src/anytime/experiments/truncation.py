"""Appendix C.3: codes ordered by three distributions of `keep`, uniform and geometric; FID by code length."""

from __future__ import annotations

from functools import partial
from typing import Any

from anytime.autoencoders.truncation import probabilities
from anytime.core.results import Results, Row, Verdict
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_by_fraction, fid_label, plot_fid
from anytime.experiments.plots import new_figure, plot_curve
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.runner import Runner
from anytime.experiments.statistics import mean_over, verdict_below
from anytime.metrics.quality import distance_name

SERIES = {"uniform": "ordered", "Geo(0.03)": "geometric-0.03", "Geo(0.1)": "geometric-0.1"}
"""Distribution -> variant."""
MARGINAL, MUCH, LONG = 0.1, 0.1, (0.6, 0.8, 1.0)
"""The paper's "marginally" (at most) and "much worse" (at least), relative to uniform; set beforehand."""


def measure(runner: Runner) -> list[Row]:
    """Return the distributions, and FID of each at every fraction."""
    return distribution_rows(runner) + FIDEvaluator(runner).measure_series(SERIES)


def distribution_rows(runner: Runner) -> list[Row]:
    """Return Pr(keep = k) of every distribution."""
    rows: list[Row] = []
    for series, variant in SERIES.items():
        config = runner.plan(variant, runner.context.seed).codes
        distribution = probabilities(config.ordered.truncation, config.model.autoencoder.length)
        rows += [{"series": series, "keep": k, "probability": p} for k, p in enumerate(distribution.tolist(), 1)]
    return rows


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide how much worse the geometric distributions are than the uniform one."""
    label, at = fid_label(rows), {series: fid_by_fraction(rows, series) for series in SERIES}
    uniform, mild, steep = SERIES
    average = partial(mean_over, rows, value=distance_name(rows), fraction=PAPER_FRACTIONS)
    return [
        verdict_below(
            f"{label}: every distribution trades codes for quality (all of the codes below 0.2 of them)",
            "with all the different distributions quality and budget can be traded off",
            {series: (at[series][1.0], at[series][0.2]) for series in SERIES},
        ),
        verdict_below(
            f"{label}: {mild} is above {uniform}, on average over the fractions",
            "Geo(0.03) is marginally worse than uniform",
            {"average": (average(uniform), average(mild))},
        ),
        verdict_below(
            f"{label}: {mild} is at most {MARGINAL:.0%} above {uniform} at every fraction",
            "Geo(0.03) is marginally worse than uniform",
            {f"{f:g}": (at[mild][f], at[uniform][f]) for f in PAPER_FRACTIONS},
            factor=1 / (1 + MARGINAL),
        ),
        verdict_below(
            f"{label}: {steep} is at least {MUCH:.0%} above {uniform} at 0.6, 0.8 and 1.0",
            "Geo(0.1) becomes much worse with large code length (0.6, 0.8, 1.0)",
            {f"{f:g}": (at[uniform][f], at[steep][f]) for f in LONG},
            factor=1 + MUCH,
        ),
    ]


def draw(results: Results) -> Any:
    """Draw the distributions and FID by code length."""
    figure = new_figure(9.0, 3.6)
    distributions, distances = figure.subplots(1, 2)
    for series, style in zip(SERIES, ("o-", "s-", "^-"), strict=True):
        plot_curve(distributions, results.rows, series, "keep", "probability")
        plot_fid(distances, results.rows, series, style)
    distributions.set(xlabel="codes kept", ylabel="probability", title="distribution in training", ylim=(0, None))
    distances.set(xlabel="fraction of the codes", ylabel=fid_label(results.rows), title=results.dataset, ylim=(0, None))
    for axes in (distributions, distances):
        axes.legend()
    return figure
