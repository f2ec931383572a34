"""Appendix C.1: Fig. 3 again on VAEs, ordered and standard: the objective orders codes without quantization, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from anytime.baselines.vae import VAE
from anytime.core.results import Results, Row, Verdict, curve, select
from anytime.experiments import ordering
from anytime.experiments.runner import RunMeasurement, Runner, digest
from anytime.experiments.statistics import combine_seeds
from anytime.experiments.variants import VAE_VARIANCES, with_variance
from anytime.metrics.reconstruction import mean_errors

SERIES = {"ordered": "ordered-vae", "standard": "standard-vae"}
"""Series -> variant with the recipe's variance of the decoder."""
GAIN_SHARE = 0.999
"""The codes with this share of the gain are also ranked separately, as evidence. The verdict ranks all codes."""


def measure(runner: Runner) -> list[Row]:
    """Return the held-out error from the first 0, 1, …, K groups of the mean code, for each variance of the decoder."""
    x = runner.context.dataset.held_out[: ordering.EXAMPLES]
    runs = [
        RunMeasurement(
            with_variance(variant, variance), seed, partial(model_rows, x=x), {"x": digest(x)},
            labels={"series": series, "seed": seed},
        )
        for seed in runner.context.seeds
        for variance in VAE_VARIANCES
        for series, variant in SERIES.items()
    ]  # fmt: skip
    variances = " and ".join(f"{variance:g}" for variance in VAE_VARIANCES)
    runner.notes.append(f"errors of {len(x):,} held-out images, decoder variance {variances}")
    return runner.measure_runs(runs)


def model_rows(model: VAE, x: UInt8[Tensor, "n channel height width"]) -> list[Row]:
    """Return the error curve of one run."""
    errors = mean_errors(x, range(model.length + 1), model.latents, model.decode, model.device)
    return ordering.error_rows(errors, examples=len(x), variance=model.config.variance)


def by_variance(rows: Sequence[Row]) -> dict[float, list[Row]]:
    """Return the rows of each variance of the decoder, the largest variance first."""
    return {variance: select(rows, variance=variance) for variance in sorted({row["variance"] for row in rows}, reverse=True)}


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the claims of the appendix for each variance of the decoder."""
    return [verdict for variance, own in by_variance(rows).items() for verdict in _decide(own, f"variance {variance:g}")]


def _decide(rows: list[Row], name: str) -> list[Verdict]:
    """Decide the claims for one variance by the mean of the seeds and by each seed."""
    each = [[row for row in rows if row["seed"] == seed] for seed in sorted({row["seed"] for row in rows})]
    correlations = [[ordering.gain_correlation(own, series) for series in SERIES] for own in (rows, *each)]
    texts = "; ".join(f"{a:.2f} ordered, {b:.2f} standard" for a, b in correlations[1:])
    gains = list(curve(rows, "ordered", "codes", "gain").values())
    first = max(2, codes_for_gain(gains))
    rank = ordering.rank_correlation(gains[:first])
    among = f"{rank:.2f} among the first {first}, which bring {GAIN_SHARE:.1%} of the ordered gain"
    lost = _lost(rows)
    ordered, standard = (curve(rows, series, "fraction", "error") for series in SERIES)
    errors = "; ".join(f"{f:g}: {ordered[f]:.4f} against {standard[f]:.4f}" for f in ordered)
    where = f"not below at {ordering.format_ranges(lost)} groups; " if lost else ""
    return [
        Verdict(
            f"{name}: {ordering.ordering_claim('standard')}",
            combine_seeds([ordering.is_ordered(*own) for own in correlations[1:]], ordering.is_ordered(*correlations[0])),
            f"rank correlation {texts}; {among}",
            "the standard VAE has irregular Δ(i), the ordered VAE much better ordering",
        ),
        Verdict(
            f"{name}: ordered has the smaller error at every length below full",
            combine_seeds([not _lost(own) for own in each], not lost),
            f"{where}{errors}",
            "the ordered VAE has better reconstructions under different truncated code lengths",
        ),
    ]


def codes_for_gain(gains: Sequence[float]) -> int:
    """Return the number of leading codes that bring most of the gain; the ranks of later codes are noise.

    >>> codes_for_gain([0.9, 0.0999, 0.0001, -0.0001])
    2
    """
    wanted = GAIN_SHARE * sum(gains)
    return next(count for count, gained in enumerate(accumulate(gains), 1) if gained >= wanted)


def _lost(rows: Sequence[Row]) -> list[int]:
    """Return the lengths below full at which ordered is not better."""
    ordered, standard = (curve(rows, series, "codes", "error") for series in SERIES)
    return [k for k in range(1, max(ordered)) if ordered[k] >= standard[k]]


def draw(results: Results) -> Any:
    """Draw gains and errors by number of groups, one curve for each series and variance."""
    named = [{**row, "series": f"{row['series']}, variance {row['variance']:g}"} for row in results.rows]
    return ordering.draw(replace(results, rows=named))
