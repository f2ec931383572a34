"""Appendix C.5: one anytime model, truncated, against a separate model for every length."""

from __future__ import annotations

from typing import Any

from anytime.core.results import Results, Row, Verdict
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_by_fraction, fid_figure, fid_label
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.runner import Runner
from anytime.experiments.statistics import verdict_below
from anytime.experiments.variants import tailored

VERY_SHORT = 0.2  # of the codes: the paper's "very short"


def measure(runner: Runner) -> list[Row]:
    """Return FID of the ordered model at every fraction of its codes, and of unordered models of those lengths."""
    evaluator, runs = FIDEvaluator(runner), []
    for seed in runner.context.seeds:
        runs.append(evaluator.measurement("ordered", seed, {"series": "anytime"}))
        for f in reversed(PAPER_FRACTIONS):  # first the unordered model, which other experiments need too
            labels = {"series": "tailored", "fraction": f}
            runs.append(evaluator.measurement(tailored(f), seed, labels, full_length=True))
    return runner.measure_runs(runs)


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide where the anytime model is better, and where the tailored one."""
    label, anytime, separate = fid_label(rows), fid_by_fraction(rows, "anytime"), fid_by_fraction(rows, "tailored")
    codes = {row["fraction"]: f"{row['codes']} codes" for row in rows if row["series"] == "tailored"}
    return [
        verdict_below(
            f"{label}: anytime below tailored at 0.4, 0.6, 0.8 and 1.0 of the codes",
            "anytime sampling always has better FID than tailored models, except when the code is very short",
            {codes[f]: (anytime[f], separate[f]) for f in PAPER_FRACTIONS if f > VERY_SHORT},
        ),
        verdict_below(
            f"{label}: tailored below anytime at {VERY_SHORT} of the codes",
            "except when the code is very short",
            {codes[VERY_SHORT]: (separate[VERY_SHORT], anytime[VERY_SHORT])},
        ),
    ]


def draw(results: Results) -> Any:
    """Draw FID by number of codes."""
    return fid_figure(results, {"anytime": "o-", "tailored": "s-"}, across="codes")
