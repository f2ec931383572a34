"""Appendix C.1: Fig. 3 again on VAEs, ordered and standard: the objective orders codes without quantization, too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from anytime.baselines.vae import VAE
from anytime.core.results import Results, Row, Verdict, combine_seeds, curve
from anytime.experiments import ordering
from anytime.experiments.ordering import (
    EXAMPLES,
    MAX_ORDERED_CORRELATION,
    MIN_UNORDERED_CORRELATION,
    error_rows,
    format_ranges,
    rank_correlation,
)
from anytime.experiments.runner import Runner, digest
from anytime.metrics.reconstruction import vae_error_by_codes

SERIES = {"ordered": "ordered-vae", "standard": "standard-vae"}
"""Each series and its kind of run."""
GAIN_SHARE = 0.999
"""The share of the gain whose codes are also ranked on their own, for the evidence; the verdict ranks all of them."""


def compute(runner: Runner) -> Results:
    """Held-out error from the first 0, 1, …, K groups of the mean code."""
    s, rows = runner.context, list[Row]()
    x = s.dataset.held_out[:EXAMPLES]
    runner.announce([(variant, seed) for seed in s.seeds for variant in SERIES.values()])
    for seed in s.seeds:
        for series, variant in SERIES.items():
            rows += runner.measure_vae(variant, seed, {"x": digest(x)}, partial(model_rows, series, seed, x=x))
    variance = rows[0]["variance"]
    return runner.results(rows, decide(rows), [f"errors of {len(x):,} held-out pictures, decoder variance {variance:g}"])


def model_rows(series: str, seed: int, model: VAE, x: UInt8[Tensor, "n channel height width"]) -> list[Row]:
    """The curve of one run."""
    errors = vae_error_by_codes(model, x, range(model.length + 1))
    shared = {"series": series, "seed": seed, "examples": len(x), "variance": model.config.variance}
    return error_rows(shared, errors)


def decide(rows: list[Row]) -> list[Verdict]:
    """The claims of the appendix, by the mean of the seeds and by each of them."""
    seeds = sorted({row["seed"] for row in rows})
    each = [[row for row in rows if row["seed"] == seed] for seed in seeds]
    ordered_correlation, standard_correlation = (_correlation(rows, series) for series in SERIES)
    spread = [tuple(_correlation(own, series) for series in SERIES) for own in each]
    texts = "; ".join(f"{a:.2f} ordered, {b:.2f} standard" for a, b in spread)
    gains = list(curve(rows, "ordered", "codes", "gain").values())
    first = max(2, codes_for_gain(gains))
    among = f"{rank_correlation(gains[:first]):.2f} among the first {first}, which bring {GAIN_SHARE:.1%} of the ordered gain"
    lost = _lost(rows)
    ordered, standard = (curve(rows, series, "fraction", "error") for series in SERIES)
    errors = "; ".join(f"{f:g}: {ordered[f]:.4f} against {standard[f]:.4f}" for f in ordered)
    where = f"not below at {format_ranges(lost)} groups; " if lost else ""
    return [
        Verdict(
            f"Δ(i) falls with i when ordered (rank correlation at most {MAX_ORDERED_CORRELATION}), "
            f"not so when standard (above {MIN_UNORDERED_CORRELATION})",
            combine_seeds(
                [a <= MAX_ORDERED_CORRELATION and b > MIN_UNORDERED_CORRELATION for a, b in spread],
                ordered_correlation <= MAX_ORDERED_CORRELATION and standard_correlation > MIN_UNORDERED_CORRELATION,
            ),
            f"rank correlation {texts}; {among}",
            "the standard VAE has irregular Δ(i), the ordered VAE much better ordering",
        ),
        Verdict(
            "ordered has the smaller error at every length below full",
            combine_seeds([not _lost(own) for own in each], not lost),
            f"{where}{errors}",
            "the ordered VAE has better reconstructions under different truncated code lengths",
        ),
    ]


def _correlation(rows: Sequence[Row], series: str) -> float:
    return rank_correlation(list(curve(rows, series, "codes", "gain").values()))


def codes_for_gain(gains: Sequence[float]) -> int:
    """How many of the first codes bring most of the gain; behind them ranks are those of noise.

    >>> codes_for_gain([0.9, 0.0999, 0.0001, -0.0001])
    2
    """
    wanted, so_far = GAIN_SHARE * sum(gains), accumulate(gains)
    return next(count for count, gained in enumerate(so_far, 1) if gained >= wanted)


def _lost(rows: Sequence[Row]) -> list[int]:
    """Lengths below full at which ordered is not ahead."""
    ordered, standard = (curve(rows, series, "codes", "error") for series in SERIES)
    return [k for k in range(1, max(ordered)) if ordered[k] >= standard[k]]


def draw(path: Path) -> Path:
    """The figure beside a results file: gains and errors, as Fig. 3."""
    return ordering.draw(path)
