"""Appendix C.3: codes ordered by three laws of `keep`, uniform and geometric, FID by code length."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from anytime.autoencoders.truncation import probabilities
from anytime.core.results import Results, Row, Verdict, curve, read, write_figure
from anytime.evaluation.image_summary import distance_name
from anytime.experiments.fid_evaluator import FID_EXPERIMENTS, FID_FRACTIONS, FIDEvaluator, label, plot, sample_count
from anytime.experiments.runner import Runner
from anytime.experiments.statistics import all_below, mean_over, values

SERIES = {"uniform": "ordered", "Geo(0.03)": "geometric-0.03", "Geo(0.1)": "geometric-0.1"}
"""Each law and its kind of run."""
MARGINAL, MUCH, LONG = 0.1, 0.1, (0.6, 0.8, 1.0)
"""The paper's "marginally" and "much worse" in numbers, set beforehand: at most and at least so much above uniform."""


def compute(runner: Runner) -> Results:
    """FID of every law at every fraction, and the laws themselves."""
    s, evaluator = runner.context, FIDEvaluator(runner, sample_count(runner.context))
    runner.announce([(variant, seed) for seed in s.seeds for variant in SERIES.values()], shared_with=FID_EXPERIMENTS)
    rows = distribution_rows(runner)
    for seed in s.seeds:
        for series, variant in SERIES.items():
            rows += [{**row, "series": series} for row in evaluator.evaluate(variant, seed)]
    return runner.results(rows, decide(rows), [evaluator.note()])


def distribution_rows(runner: Runner) -> list[Row]:
    """Pr(keep = k) of every law."""
    rows: list[Row] = []
    for series, variant in SERIES.items():
        config = runner.plan(variant, runner.context.seed).codes
        distribution = probabilities(config.ordered.truncation, config.model.autoencoder.length)
        rows += [{"series": series, "keep": k, "probability": p} for k, p in enumerate(distribution.tolist(), 1)]
    return rows


def decide(rows: list[Row]) -> list[Verdict]:
    """How far the geometric laws are behind the uniform one."""
    name, found = distance_name(rows), label(rows)
    at = {(series, f): values(rows, series, name, fraction=f) for series in SERIES for f in FID_FRACTIONS}
    uniform, mild, steep = SERIES
    average = partial(mean_over, rows, value=name, fraction=FID_FRACTIONS)
    return [
        Verdict(
            f"{found}: every law trades codes for quality (all of the codes below 0.2 of them)",
            *all_below({distribution: (at[distribution, 1.0], at[distribution, 0.2]) for distribution in SERIES}),
            "with all the different distributions quality and budget can be traded off",
        ),
        Verdict(
            f"{found}: {mild} is above {uniform}, on average over the fractions",
            *all_below({"average": (average(uniform), average(mild))}),
            "Geo(0.03) is marginally worse than uniform",
        ),
        Verdict(
            f"{found}: {mild} is at most {MARGINAL:.0%} above {uniform} at every fraction",
            *all_below({f"{f:g}": (at[mild, f], at[uniform, f]) for f in FID_FRACTIONS}, factor=1 / (1 + MARGINAL)),
            "Geo(0.03) is marginally worse than uniform",
        ),
        Verdict(
            f"{found}: {steep} is at least {MUCH:.0%} above {uniform} at 0.6, 0.8 and 1.0",
            *all_below({f"{f:g}": (at[uniform, f], at[steep, f]) for f in LONG}, factor=1 + MUCH),
            "Geo(0.1) becomes much worse with large code length (0.6, 0.8, 1.0)",
        ),
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
    distributions, distances = figure.subplots(1, 2)
    for series, style in zip(SERIES, ("o-", "s-", "^-"), strict=True):
        distribution = curve(results.rows, series, "keep", "probability")
        distributions.plot(list(distribution), list(distribution.values()), label=series)
        plot(distances, results.rows, series, style)
    distributions.set(xlabel="codes kept", ylabel="probability", title="law in training", ylim=(0, None))
    distances.set(xlabel="fraction of the codes", ylabel=label(results.rows), title=results.dataset, ylim=(0, None))
    for axes in (distributions, distances):
        axes.legend()
    return write_figure(path, figure)
