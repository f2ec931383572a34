"""Fig. 4a: FID by code length for ordered and unordered codes, beside the original VQ-VAE (Section 5.2.1)."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import Any

from anytime.core.results import Results, Row, Verdict, curve
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_figure, fid_label
from anytime.experiments.registry import PAIR, PAPER_FRACTIONS
from anytime.experiments.runner import Runner, digest
from anytime.experiments.statistics import combine_seeds, spread, values
from anytime.metrics.quality import data_row, distance_name

PAPER_SAMPLES = {"celeba": 100_000}
DEFAULT_PAPER_SAMPLES = 50_000
ORIGINAL = "original"
SPATIAL = "its codes are positions in reading order: a prefix is the top rows of the map, the rest are zero latents"
HELD_OUT = "held-out data"
MAX_LOSS = {0.8: 0.02, 0.6: 0.05}
"""The paper's "almost no loss" as a bound, set beforehand: the largest relative rise of FID above full length."""


def measure(runner: Runner) -> list[Row]:
    """Return FID of every run at every fraction; the original VQ-VAE is a reference, with the first seed only."""
    s = runner.context
    evaluator = FIDEvaluator(runner, PAPER_SAMPLES.get(s.dataset.name, DEFAULT_PAPER_SAMPLES))
    runs = [evaluator.measurement(variant, seed, {}) for seed in s.seeds for variant in PAIR]
    rows = runner.measure_runs([*runs, evaluator.measurement(ORIGINAL, s.seed, {"prefix": SPATIAL})])
    x, network = s.dataset.held_out, evaluator.network
    facts = {**evaluator.facts, "x": digest(x)}
    held_out = runner.measure_data(HELD_OUT, facts, lambda: [data_row(x, evaluator.real, network, None, s.reporter, s.pause)])
    return rows + held_out


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the paper's claims by all seeds."""
    name = distance_name(rows)
    by_fraction = {variant: {f: values(rows, variant, name, fraction=f) for f in PAPER_FRACTIONS} for variant in PAIR}
    verdicts = [
        _below_when_truncated(rows, name, by_fraction),
        *(_little_lost(rows, name, by_fraction["ordered"], f) for f in MAX_LOSS),
        _below_at_full_length(by_fraction["ordered"][1.0], by_fraction["unordered"][1.0]),
    ]
    return [replace(verdict, claim=f"{fid_label(rows)}: {verdict.claim}") for verdict in verdicts]


FIDByFraction = dict[float, list[float]]


def _below_when_truncated(rows: list[Row], name: str, by_fraction: dict[str, FIDByFraction]) -> Verdict:
    ordered, unordered = (curve(rows, variant, "fraction", name) for variant in PAIR)
    short = PAPER_FRACTIONS[:-1]
    seeds = range(len(by_fraction["unordered"][1.0]))
    each = [all(by_fraction["ordered"][f][seed] < by_fraction["unordered"][f][seed] for f in short) for seed in seeds]
    return Verdict(
        "ordered below unordered at 0.2, 0.4, 0.6 and 0.8 of the codes",
        combine_seeds(each, all(ordered[f] < unordered[f] for f in short)),
        "; ".join(f"{f:g}: {ordered[f]:.1f} against {unordered[f]:.1f}" for f in short),
        "a better FID than unordered at all fractional code lengths",
    )


def _little_lost(rows: list[Row], name: str, ordered: FIDByFraction, fraction: float) -> Verdict:
    means, bound = curve(rows, "ordered", "fraction", name), MAX_LOSS[fraction]
    loss = means[fraction] / means[1.0] - 1
    each = [short / full - 1 <= bound for short, full in zip(ordered[fraction], ordered[1.0], strict=True)]
    return Verdict(
        f"ordered at {fraction} of the codes is at most {bound:.0%} above full length",
        combine_seeds(each, loss <= bound),
        f"{means[fraction]:.1f} against {means[1.0]:.1f}: {loss:+.1%}",
        "almost no loss in sample quality using only 60% to 80% of all latent dimensions",
    )


def _below_at_full_length(ordered: list[float], unordered: list[float]) -> Verdict:
    """Decide only with several seeds that differ less than ordered and unordered do."""
    gap, width, several = mean(ordered) - mean(unordered), spread(ordered, unordered), len(unordered) > 1
    texts = [
        f"{variant} {', '.join(f'{v:.1f}' for v in each)}" for variant, each in zip(PAIR, (ordered, unordered), strict=True)
    ]
    margin = f"spread over seeds {width:.1f}" if several else "one seed, no spread"
    return Verdict(
        "ordered below unordered at full length",
        gap < 0 if several and abs(gap) > width else None,
        f"{'; '.join(texts)}; difference {gap:+.1f}, {margin}",
        "on CIFAR-10 a better FID even when sampling full codes",
    )


def draw(results: Results) -> Any:
    """Draw FID by code length, with held-out data as a line."""
    figure = fid_figure(results, dict(zip((*PAIR, ORIGINAL), ("o-", "s-", "^:"), strict=True)))
    (axes,) = figure.axes
    for row in results.rows:
        if row["series"] == HELD_OUT:
            axes.axhline(row[distance_name(results.rows)], color="grey", linestyle="--", label=HELD_OUT)
    axes.legend()
    return figure
