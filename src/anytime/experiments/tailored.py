"""Appendix C.5: one anytime model, cut short, against a model of its own for every length."""

from __future__ import annotations

from pathlib import Path

from anytime.core.results import Results, Row, Verdict, read, write_figure
from anytime.evaluation.image_summary import distance_name
from anytime.experiments.fid_evaluator import FID_EXPERIMENTS, FID_FRACTIONS, FULL, FIDEvaluator, label, plot, sample_count
from anytime.experiments.runner import Runner
from anytime.experiments.statistics import all_below, values
from anytime.experiments.variants import tailored

SHORT = 0.2  # of the codes: what the paper's "very short" is taken to be


def compute(runner: Runner) -> Results:
    """FID of the ordered model from every fraction of its codes, and of unordered models made for as many codes."""
    s, evaluator, rows = runner.context, FIDEvaluator(runner, sample_count(runner.context)), list[Row]()
    kinds = ["ordered", *(tailored(fraction) for fraction in reversed(FID_FRACTIONS))]
    runner.announce([(variant, seed) for seed in s.seeds for variant in kinds], shared_with=FID_EXPERIMENTS)
    for seed in s.seeds:
        rows += [{**row, "series": "anytime"} for row in evaluator.evaluate("ordered", seed)]
        for fraction in reversed(FID_FRACTIONS):  # the unordered model, which others need as well, first
            rows += [
                {**row, "series": "tailored", "fraction": fraction}
                for row in full_length_rows(evaluator, tailored(fraction), seed)
            ]
    return runner.results(rows, decide(rows), [evaluator.note()])


def full_length_rows(evaluator: FIDEvaluator, variant: str, seed: int) -> list[Row]:
    """A run at its full length. Of unordered models other experiments ask all fractions, which then are known."""
    rows = evaluator.evaluate(variant, seed, FID_FRACTIONS if variant in ("ordered", "unordered") else FULL)
    return [row for row in rows if row["fraction"] == 1]


def decide(rows: list[Row]) -> list[Verdict]:
    """Anytime ahead, except when very short."""
    name, found = distance_name(rows), label(rows)
    codes = {row["fraction"]: row["codes"] for row in rows if row["series"] == "tailored"}
    both = {f: tuple(values(rows, series, name, fraction=f) for series in ("anytime", "tailored")) for f in FID_FRACTIONS}
    longer = {f"{codes[f]} codes": (both[f][0], both[f][1]) for f in FID_FRACTIONS if f > SHORT}
    short = {f"{codes[SHORT]} codes": (both[SHORT][1], both[SHORT][0])}
    return [
        Verdict(
            f"{found}: anytime below tailored at 0.4, 0.6, 0.8 and 1.0 of the codes",
            *all_below(longer),
            "anytime sampling always has better FID than tailored models, except when the code is very short",
        ),
        Verdict(
            f"{found}: tailored below anytime at {SHORT} of the codes", *all_below(short), "except when the code is very short"
        ),
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for series, style in zip(("anytime", "tailored"), ("o-", "s-"), strict=True):
        plot(axes, results.rows, series, style, "codes")
    axes.set(xlabel="codes", ylabel=label(results.rows), title=results.dataset, ylim=(0, None))
    axes.legend()
    return write_figure(path, figure)
