"""Fig. 3: the gain of each code, Δ(i), and the error by code length, for PCA, unordered and ordered codes (Section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import mean
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.autoencoders.quantizer import codebook_usage
from anytime.baselines import pca
from anytime.core.progress import Reporter
from anytime.core.results import Results, Row, Verdict, curve
from anytime.experiments.plots import new_figure, plot_curve
from anytime.experiments.registry import PAIR, PAPER_FRACTIONS
from anytime.experiments.runner import Runner, digest
from anytime.metrics.code_stats import encode_dataset
from anytime.metrics.reconstruction import error_by_codes, gains, mean_errors
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

EXAMPLES = 10_000  # held-out images, at most
SHORT = 0.2  # of the codes: the paper's "sufficiently truncated"
MAX_ORDERED_CORRELATION, MIN_UNORDERED_CORRELATION = -0.9, -0.5
"""Bounds on the rank correlation of Δ(i) with i, set before any model was measured."""
SIMILAR = 1.1
"""Largest ratio of two errors that the paper would call similar. Set after the first measurement: the margin of one seed."""


def measure(runner: Runner) -> list[Row]:
    """Return the held-out error of every run from 0, 1, …, K codes, and of PCA with as many real numbers."""
    s, x = runner.context, runner.context.dataset.held_out[:EXAMPLES]
    facts = {"x": digest(x)}
    runner.notes.append(f"errors of {len(x):,} held-out images")
    rows = runner.measure_series({v: v for v in PAIR}, lambda model, seed: model_rows(model, x, s.reporter), facts)
    length = runner.plan("ordered", s.seed).codes.model.autoencoder.length

    def pca_rows() -> list[Row]:
        fitted = pca.fit(s.dataset.images.to(s.device), length)
        errors = mean_errors(x, range(length + 1), fitted.encode, fitted.decode, fitted.mean.device)
        return error_rows(errors, series="pca", examples=len(x))

    return rows + runner.measure_data("pca", {**facts, "length": length, "train": len(s.dataset.train)}, pca_rows)


def model_rows(model: AnytimeModel, x: UInt8[Tensor, "n channel height width"], reporter: Reporter) -> list[Row]:
    """Return the error curve of one run, with the usage of its codebook."""
    reporter.stage("errors", 0, len(x))
    errors = error_by_codes(model, x, range(model.length + 1), lambda done: reporter.progress(done, {}))
    codes = encode_dataset(model.autoencoder, x).flatten()
    usage = codebook_usage(torch.bincount(codes, minlength=model.codebook_size))
    return error_rows(errors, examples=len(x), codes_used=usage.used, perplexity=usage.perplexity)


def error_rows(errors: Sequence[float], **shared: Any) -> list[Row]:
    """Return a row for every length: error, Δ, and the fraction if the paper plots it."""
    length = len(errors) - 1
    named = {code_count(length, fraction=fraction): {"fraction": fraction} for fraction in PAPER_FRACTIONS}
    return [
        {**shared, **named.get(count, {}), "codes": count, "length": length, "error": error, "gain": gain}
        for count, (error, gain) in enumerate(zip(errors, [None, *gains(errors)], strict=True))
    ]


def rank_correlation(values: Sequence[float]) -> float:
    """Return Spearman's rank correlation of the values with their positions.

    >>> rank_correlation([9.0, 5.0, 1.0]), rank_correlation([1.0, 5.0, 9.0])
    (-1.0, 1.0)
    """
    n, places = len(values), sorted(range(len(values)), key=values.__getitem__)
    return 1 - 6 * sum((rank - place) ** 2 for rank, place in enumerate(places)) / (n * (n * n - 1))


def gain_correlation(rows: Sequence[Row], series: str) -> float:
    """Return the rank correlation of Δ(i) with i."""
    return rank_correlation(list(curve(rows, series, "codes", "gain").values()))


def is_ordered(ordered: float, other: float) -> bool:
    """Return whether Δ(i) falls for the ordered codes and not for the other ones, by their rank correlations."""
    return ordered <= MAX_ORDERED_CORRELATION and other > MIN_UNORDERED_CORRELATION


def ordering_claim(other: str) -> str:
    """Return the claim that `is_ordered` decides."""
    falls = f"Δ(i) falls with i when ordered (rank correlation at most {MAX_ORDERED_CORRELATION})"
    return f"{falls}, not so when {other} (above {MIN_UNORDERED_CORRELATION})"


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the claims of Section 5.1."""
    ordered, unordered, components = (curve(rows, name, "codes", "error") for name in (*PAIR, "pca"))
    length = max(ordered)
    lost = [k for k in range(1, length) if ordered[k] >= min(unordered[k], components[k])]
    short = code_count(length, fraction=SHORT)
    ahead = next((k - 1 for k in range(1, length + 1) if components[k] >= unordered[k]), length)
    correlations = [gain_correlation(rows, name) for name in PAIR]
    ratio = mean(ordered[k] / min(unordered[k], components[k]) for k in range(1, length))
    return [
        Verdict(
            "ordered has the least error at every length below full",
            not lost,
            f"not the least at {format_ranges(lost)} codes" if lost else f"on average {ratio:.2f} of the next best",
            "superior reconstructions compared to PCA and unordered across all truncation lengths",
        ),
        Verdict(
            f"PCA is ahead of unordered at every length up to {SHORT} of the codes",
            ahead >= short,
            f"ahead up to {ahead} of {length} codes",
            "when sufficiently truncated, even PCA outperforms unordered VQ-VAE",
        ),
        Verdict(
            ordering_claim("unordered"),
            is_ordered(*correlations),
            "rank correlation {:.2f} ordered, {:.2f} unordered".format(*correlations),
            "ordered Δ(i) decays gradually, unordered is highly irregular",
        ),
        _short_and_full(rows, short),
    ]


def _short_and_full(rows: list[Row], short: int) -> Verdict:
    """Decide whether order costs little with all codes and gains much with few."""
    ordered, unordered = (curve(rows, name, "codes", "error") for name in PAIR)
    length = max(ordered)
    lost = [k for k in range(1, short + 1) if ordered[k] >= unordered[k]]
    ratio, first = ordered[length] / unordered[length], ordered[short] / unordered[short]
    return Verdict(
        f"ordered has the smaller error at every length up to {SHORT} of the codes, "
        f"and at most {SIMILAR - 1:.0%} more error than unordered at full length",
        not lost and ratio <= SIMILAR,
        f"{first:.2f} of the unordered error at {short} codes, {ratio:.2f} of it at {length}",
        "similar errors for sufficiently large code lengths, significantly better when aggressively truncated",
    )


def format_ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, runs as ranges.

    >>> format_ranges([1, 2, 3, 7])
    '1–3, 7'
    """
    groups = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in group] for _, group in groups]
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges)


def draw(results: Results) -> Any:
    """Draw gains and errors by number of codes."""
    figure = new_figure(9.0, 3.4)
    panels = (("gain", "Δ(i)", "code i"), ("error", "mean squared error", "codes kept"))
    for axes, (value, label, xlabel) in zip(figure.subplots(1, 2), panels, strict=True):
        for name in dict.fromkeys(row["series"] for row in results.rows):
            plot_curve(axes, results.rows, name, "codes", value, ":" if name == "pca" else "-", marker=".")
        axes.set(xlabel=xlabel, ylabel=label, title=results.dataset)
        axes.legend()
    figure.axes[-1].set_ylim(0, None)
    return figure
