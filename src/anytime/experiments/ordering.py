"""Fig. 3: what each code brings, Δ(i), and the error by code length, for PCA, unordered and ordered codes (Section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.autoencoders.quantizer import codebook_usage
from anytime.baselines import pca
from anytime.core.progress import Reporter
from anytime.core.results import Results, Row, Verdict, curve, read, write_figure
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Runner, digest
from anytime.metrics.code_stats import error_by_codes, gains
from anytime.metrics.reconstruction import pca_error_by_codes
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count
from anytime.training.sample_grids import encode_dataset

ERROR_FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
EXAMPLES = 10_000  # held-out pictures, at most
SHORT = 0.2  # of the codes: what the paper's "sufficiently truncated" is taken to be
MAX_ORDERED_CORRELATION, MIN_UNORDERED_CORRELATION = -0.9, -0.5
"""Rank correlation of Δ(i) with i, at most and at least; set before any model was measured."""


def compute(runner: Runner) -> Results:
    """Held-out error of every run from 0, 1, …, K codes, and PCA's with as many real numbers."""
    s, rows = runner.context, list[Row]()
    x = s.dataset.held_out[:EXAMPLES]
    facts = {"x": digest(x)}
    for seed in s.seeds:
        for variant in PAIR:
            rows += runner.measure_run(variant, seed, facts, partial(model_rows, variant, seed, x=x, reporter=s.reporter))
    length = runner.plan("ordered", s.seed).codes.model.autoencoder.length

    def pca_curve() -> list[Row]:
        errors = pca_error_by_codes(pca.fit(s.dataset.images.to(s.device), length), x, range(length + 1))
        return error_rows({"series": "pca", "examples": len(x)}, errors)

    rows += runner.measure_data("pca", {**facts, "length": length, "train": len(s.dataset.train)}, pca_curve)
    return runner.results(rows, decide(rows), [f"errors of {len(x):,} held-out pictures"])


def model_rows(
    variant: str, seed: int, model: AnytimeModel, x: UInt8[Tensor, "n channel height width"], reporter: Reporter
) -> list[Row]:
    """The curve of one run, with the use of its codebook."""
    reporter.stage("errors", 0, len(x))
    errors = error_by_codes(model, x, range(model.length + 1), lambda done: reporter.progress(done, {}))
    codes = encode_dataset(model.autoencoder, x).flatten()
    use = codebook_usage(torch.bincount(codes, minlength=model.codebook_size))
    shared = {"series": variant, "seed": seed, "examples": len(x), "codes_used": use.used, "perplexity": use.perplexity}
    return error_rows(shared, errors)


def error_rows(shared: Row, errors: Sequence[float]) -> list[Row]:
    """A row for every length: error, Δ, and the fraction where it is one of those that the paper plots."""
    length = len(errors) - 1
    named = {code_count(length, fraction=fraction): {"fraction": fraction} for fraction in ERROR_FRACTIONS}
    return [
        {**shared, **named.get(count, {}), "codes": count, "length": length, "error": error, "gain": gain}
        for count, (error, gain) in enumerate(zip(errors, [None, *gains(errors)], strict=True))
    ]


def rank_correlation(values: Sequence[float]) -> float:
    """Spearman's, of the values with their places.

    >>> rank_correlation([9.0, 5.0, 1.0]), rank_correlation([1.0, 5.0, 9.0])
    (-1.0, 1.0)
    """
    ranks = {place: rank for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place]))}
    n = len(values)
    return 1 - 6 * sum((ranks[place] - place) ** 2 for place in range(n)) / (n * (n * n - 1))


def decide(rows: list[Row]) -> list[Verdict]:
    """The claims of Section 5.1 that the curves can bear out or refute."""
    ordered, unordered, pca_curve = (curve(rows, name, "codes", "error") for name in (*PAIR, "pca"))
    length = max(ordered)
    lost = [k for k in range(1, length) if ordered[k] >= min(unordered[k], pca_curve[k])]
    short = range(1, code_count(length, fraction=SHORT) + 1)
    ahead = next((k - 1 for k in range(1, length + 1) if pca_curve[k] >= unordered[k]), length)
    ordered_correlation, unordered_correlation = (
        rank_correlation(list(curve(rows, name, "codes", "gain").values())) for name in PAIR
    )
    ratio = mean(ordered[k] / min(unordered[k], pca_curve[k]) for k in range(1, length))
    return [
        Verdict(
            "ordered has the least error at every length below full",
            not lost,
            f"not the least at {format_ranges(lost)} codes" if lost else f"on average {ratio:.2f} of the next best",
            "superior reconstructions compared to PCA and unordered across all truncation lengths",
        ),
        Verdict(
            f"PCA is ahead of unordered at every length up to {SHORT} of the codes",
            ahead >= short[-1],
            f"ahead up to {ahead} of {length} codes",
            "when sufficiently truncated, even PCA outperforms unordered VQ-VAE",
        ),
        Verdict(
            f"Δ(i) falls with i when ordered (rank correlation at most {MAX_ORDERED_CORRELATION}), "
            f"not so when unordered (above {MIN_UNORDERED_CORRELATION})",
            ordered_correlation <= MAX_ORDERED_CORRELATION and unordered_correlation > MIN_UNORDERED_CORRELATION,
            f"rank correlation {ordered_correlation:.2f} ordered, {unordered_correlation:.2f} unordered",
            "ordered Δ(i) decays gradually, unordered is highly irregular",
        ),
    ]


def format_ranges(numbers: Sequence[int]) -> str:
    """
    >>> format_ranges([1, 2, 3, 7])
    '1–3, 7'
    """
    format_ranges: list[list[int]] = []
    for number in numbers:
        if format_ranges and number == format_ranges[-1][1] + 1:
            format_ranges[-1][1] = number
        else:
            format_ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in format_ranges)


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone; errors only where there are no gains."""
    import matplotlib.figure

    results = read(path)
    has_gains = any(row.get("gain") is not None for row in results.rows)
    figure = matplotlib.figure.Figure(figsize=(9 if has_gains else 5, 3.4), layout="constrained")
    panels = [("gain", "Δ(i)", "code i"), ("error", "mean squared error", "codes kept")][0 if has_gains else 1 :]
    for axes, (value, label, across) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name in dict.fromkeys(row["series"] for row in results.rows):
            points = curve(results.rows, name, "codes", value)
            axes.plot(list(points), list(points.values()), ":" if name == "pca" else "-", marker=".", label=name)
        axes.set(xlabel=across, ylabel=label, title=results.dataset)
        axes.legend()
    figure.axes[-1].set_ylim(0, None)
    return write_figure(path, figure)
