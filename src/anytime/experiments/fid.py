"""Fig. 4a: FID by code length for ordered and unordered codes, beside the original VQ-VAE (Section 5.2.1)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import Any

from anytime.core.results import Results, Row, Verdict, select
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_by_fraction, fid_figure, fid_label
from anytime.experiments.registry import PAIR, PAPER_FRACTIONS
from anytime.experiments.runner import Runner, digest
from anytime.experiments.statistics import all_hold, combine_seeds, is_below, spread, verdict_below
from anytime.metrics.quality import data_row, distance_name

PAPER_SAMPLES = {"celeba": 100_000}
DEFAULT_PAPER_SAMPLES = 50_000
ORIGINAL = "original"
SPATIAL = "its codes are positions in reading order: a prefix is the top rows of the map, the rest are zero latents"
HELD_OUT = "held-out data"
MAX_LOSS = {0.8: 0.02, 0.6: 0.05}
"""The paper's "almost no loss" as a bound, set beforehand: the largest relative rise of FID above full length."""
RATIO_MARGIN = 0.02
"""With one seed, a relative rise this near to its bound may be chance. Two seeds of a model differ by up to 1.1 points."""


def measure(runner: Runner) -> list[Row]:
    """Return FID of every run at every fraction; the original VQ-VAE is a reference."""
    s = runner.context
    evaluator = FIDEvaluator(runner, PAPER_SAMPLES.get(s.dataset.name, DEFAULT_PAPER_SAMPLES))
    labels: dict[str, dict[str, str]] = {ORIGINAL: {"prefix": SPATIAL}}
    runs = [evaluator.measurement(v, seed, labels.get(v, {})) for seed in s.seeds for v in (*PAIR, ORIGINAL)]
    x, network = s.dataset.held_out, evaluator.network
    facts, equal = {**evaluator.facts, "x": digest(x)}, [{"network": each} for each in network.equal_digests]
    # The reference first: it is then measured wherever a run is.
    held_out = runner.measure_data(
        HELD_OUT, facts, lambda: [data_row(x, evaluator.real, network, None, s.reporter, s.pause)], equal
    )
    return runner.measure_runs(runs) + held_out


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the paper's claims by all seeds."""
    ordered, unordered = (fid_by_fraction(rows, variant) for variant in PAIR)
    verdicts = [_below_when_truncated(ordered, unordered), *(_little_lost(ordered, f) for f in MAX_LOSS)]
    verdicts += [_below_at_full_length(ordered[1.0], unordered[1.0]), _falls_with_length(ordered)]
    if original := fid_by_fraction(rows, ORIGINAL)[1.0]:
        verdicts.append(_not_above_original(ordered[1.0], original))
    return [replace(verdict, claim=f"{fid_label(rows)}: {verdict.claim}") for verdict in verdicts]


def _below_when_truncated(ordered: dict[float, list[float]], unordered: dict[float, list[float]]) -> Verdict:
    means = {f: (mean(ordered[f]), mean(unordered[f])) for f in PAPER_FRACTIONS[:-1]}
    each = [all(ordered[f][seed] < unordered[f][seed] for f in means) for seed in range(len(unordered[1.0]))]
    holds = combine_seeds(each, all(a < b for a, b in means.values()))
    if len(each) == 1:  # no second seed could contradict it
        holds = all_hold([is_below(ordered[f], unordered[f]) for f in means])
    return Verdict(
        "ordered below unordered at 0.2, 0.4, 0.6 and 0.8 of the codes",
        holds,
        "; ".join(f"{f:g}: {a:.1f} against {b:.1f}" for f, (a, b) in means.items()),
        "a better FID than unordered at all fractional code lengths",
    )


def _little_lost(ordered: dict[float, list[float]], fraction: float) -> Verdict:
    """Both lengths are of the same samples, so that their ratio varies less over seeds than FID does."""
    short, full, bound = mean(ordered[fraction]), mean(ordered[1.0]), MAX_LOSS[fraction]
    rises = [a / b - 1 for a, b in zip(ordered[fraction], ordered[1.0], strict=True)]
    holds, text = combine_seeds([rise <= bound for rise in rises], short / full - 1 <= bound), ""
    if len(rises) == 1:  # no second seed could contradict it
        holds = holds if abs(rises[0] - bound) > RATIO_MARGIN else None
        text = f"; one seed, up to {RATIO_MARGIN:.0%} may be chance"
    return Verdict(
        f"ordered at {fraction} of the codes is at most {bound:.0%} above full length",
        holds,
        f"{short:.1f} against {full:.1f}: {short / full - 1:+.1%}{text}",
        "almost no loss in sample quality using only 60% to 80% of all latent dimensions",
    )


def _below_at_full_length(ordered: list[float], unordered: list[float]) -> Verdict:
    """Decide only with several seeds that differ less than ordered and unordered do."""
    gap, width, several = mean(ordered) - mean(unordered), spread(ordered, unordered), len(unordered) > 1
    first, second = (", ".join(f"{v:.1f}" for v in each) for each in (ordered, unordered))
    margin = f"spread over seeds {width:.1f}" if several else "one seed, no spread"
    return Verdict(
        "ordered below unordered at full length",
        gap < 0 if several and abs(gap) > width else None,
        f"ordered {first}; unordered {second}; difference {gap:+.1f}, {margin}",
        "a better FID up to 100% of the codes, on CIFAR-10 even when sampling full codes",
    )


def _falls_with_length(ordered: dict[float, list[float]]) -> Verdict:
    falls = {(short, more): is_below(ordered[more], ordered[short]) for short, more in pairwise(ordered)}
    undecided = [f"{short:g} to {more:g}" for (short, more), holds in falls.items() if holds is None]
    text = "; ".join(f"{fraction:g}: {mean(numbers):.1f}" for fraction, numbers in ordered.items())
    return Verdict(
        "ordered falls with every further fifth of the codes",
        all_hold(list(falls.values())),
        text + (f"; may be chance from {', '.join(undecided)}" if undecided else ""),
        "a consistent increase in sample quality with the code length",
    )


def _not_above_original(ordered: list[float], original: list[float]) -> Verdict:
    """Decide whether samples of ordered codes are as good as the original VQ-VAE's, both at full length."""
    better = verdict_below("", "", {"full length": (original, ordered)})
    first, second = (", ".join(f"{v:.1f}" for v in each) for each in (ordered, original))
    return Verdict(
        "ordered not above the original VQ-VAE at full length",
        None if better.holds is None else not better.holds,
        f"ordered {first}; original {second}; {better.evidence.rpartition('; ')[2]}",
        "faster than the original VQ-VAE without compromising sample quality",
    )


def draw(results: Results) -> Any:
    """Draw FID by code length, with held-out data as a line."""
    figure = fid_figure(results, dict(zip((*PAIR, ORIGINAL), ("o-", "s-", "^:"), strict=True)))
    (axes,) = figure.axes
    for row in select(results.rows, series=HELD_OUT):
        axes.axhline(row[distance_name(results.rows)], color="grey", linestyle="--", label=HELD_OUT)
    axes.legend()
    return figure
