"""Fig. 4a: FID by code length for ordered and unordered codes, beside the original VQ-VAE (Section 5.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from anytime.core.results import Results, Row, Verdict, combine_seeds, curve, read, write_figure
from anytime.evaluation.image_summary import distance_name
from anytime.experiments.fid_evaluator import FID_EXPERIMENTS, FID_FRACTIONS, FIDEvaluator, label, plot, sample_count
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Runner, digest
from anytime.metrics.quality import data_row

SAMPLES, PAPER_SAMPLES = 50_000, {"celeba": 100_000}
"""The paper's numbers of samples."""
ORIGINAL = "original"
SPATIAL = "its codes are places in reading order: a prefix is the top rows of the map, the rest are zero latents"
HELD_OUT = "held-out data"
MAX_LOSS = {0.8: 0.02, 0.6: 0.05}
"""The paper's "almost no loss" in numbers, set beforehand: how much FID may be above that of full length."""


def compute(runner: Runner) -> Results:
    """FID of every run at every fraction; the original VQ-VAE, which is there as a mark, with the first seed only."""
    s, rows = runner.context, list[Row]()
    paper, x = PAPER_SAMPLES.get(s.dataset.name, SAMPLES), s.dataset.held_out
    evaluator = FIDEvaluator(runner, sample_count(s, paper))
    # The mark comes last: no verdict needs it.
    runs = [*((variant, seed) for seed in s.seeds for variant in PAIR), (ORIGINAL, s.seed)]
    runner.announce(runs, shared_with=FID_EXPERIMENTS)
    for variant, seed in runs:
        about = {"prefix": SPATIAL} if variant == ORIGINAL else {}
        rows += [{**row, **about} for row in evaluator.evaluate(variant, seed)]
    facts = {**evaluator.shared, "x": digest(x)}
    rows += runner.measure_data(
        HELD_OUT, facts, lambda: [data_row(x, evaluator.real(), evaluator.network, None, s.reporter, s.pause)]
    )
    return runner.results(rows, decide(rows), [evaluator.note(paper)])


def decide(rows: list[Row]) -> list[Verdict]:
    """The paper's claims, by all seeds that both kinds were trained with."""
    name = distance_name(rows)
    found = {(row["series"], row["seed"], row["fraction"]): row[name] for row in rows if "fraction" in row}
    seeds = [seed for variant, seed, fraction in found if (variant, fraction) == ("unordered", 1.0)]
    verdicts = [
        ordered_below_unordered(rows, name, found, seeds),
        *(little_lost(rows, name, found, seeds, f) for f in MAX_LOSS),
        ordered_below_at_full_length(found, seeds),
    ]
    return [replace(verdict, claim=f"{label(rows)}: {verdict.claim}") for verdict in verdicts]


FIDBySeed = dict[tuple[str, int, float], float]


def ordered_below_unordered(rows: list[Row], name: str, found: FIDBySeed, seeds: Sequence[int]) -> Verdict:
    """Ordered below unordered at every length below full."""
    ordered, unordered = (curve(rows, variant, "fraction", name) for variant in PAIR)
    each = [all(found["ordered", seed, f] < found["unordered", seed, f] for f in FID_FRACTIONS[:-1]) for seed in seeds]
    return Verdict(
        "ordered below unordered at 0.2, 0.4, 0.6 and 0.8 of the codes",
        combine_seeds(each, all(ordered[f] < unordered[f] for f in FID_FRACTIONS[:-1])),
        "; ".join(f"{f:g}: {ordered[f]:.1f} against {unordered[f]:.1f}" for f in FID_FRACTIONS[:-1]),
        "a better FID than unordered at all fractional code lengths",
    )


def little_lost(rows: list[Row], name: str, found: FIDBySeed, seeds: Sequence[int], fraction: float) -> Verdict:
    """Almost nothing lost at a fraction of the codes."""
    ordered = curve(rows, "ordered", "fraction", name)
    loss = ordered[fraction] / ordered[1.0] - 1
    each = [found["ordered", seed, fraction] / found["ordered", seed, 1.0] - 1 <= MAX_LOSS[fraction] for seed in seeds]
    return Verdict(
        f"ordered at {fraction} of the codes is at most {MAX_LOSS[fraction]:.0%} above full length",
        combine_seeds(each, loss <= MAX_LOSS[fraction]),
        f"{ordered[fraction]:.1f} against {ordered[1.0]:.1f}: {loss:+.1%}",
        "almost no loss in sample quality using only 60% to 80% of all latent dimensions",
    )


def ordered_below_at_full_length(found: FIDBySeed, seeds: Sequence[int]) -> Verdict:
    """Ordered below unordered at full length: undecided with one seed, or where the seeds differ as much as the kinds."""
    ordered, unordered = ([found[variant, seed, 1.0] for seed in seeds] for variant in PAIR)
    gap = mean(ordered) - mean(unordered)
    spread = max(max(values) - min(values) for values in (ordered, unordered))
    known = len(seeds) > 1 and abs(gap) > spread
    texts = (
        f"{variant} {', '.join(f'{value:.1f}' for value in values)}"
        for variant, values in zip(PAIR, (ordered, unordered), strict=True)
    )
    width = f"spread over seeds {spread:.1f}" if len(seeds) > 1 else "one seed, no spread"
    return Verdict(
        "ordered below unordered at full length",
        gap < 0 if known else None,
        f"{'; '.join(texts)}; difference {gap:+.1f}, {width}",
        "on CIFAR-10 a better FID even when sampling full codes",
    )


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    name = distance_name(results.rows)
    figure = matplotlib.figure.Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for variant, style in zip((*PAIR, ORIGINAL), ("o-", "s-", "^:"), strict=True):
        plot(axes, results.rows, variant, style)
    for row in results.rows:
        if row["series"] == HELD_OUT:
            axes.axhline(row[name], color="grey", linestyle="--", label=HELD_OUT)
    axes.set(xlabel="fraction of the codes", ylabel=label(results.rows), title=results.dataset, ylim=(0, None))
    axes.legend()
    return write_figure(path, figure)
