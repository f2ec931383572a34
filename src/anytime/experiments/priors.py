"""Appendix C.2: Transformer, LSTM and PixelCNN on the same ordered codes, FID by code length."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import mean

from jaxtyping import UInt8
from torch import Tensor

from anytime.core.results import Results, Row, Verdict, read, write_figure
from anytime.evaluation.image_summary import distance_name
from anytime.experiments.fid_evaluator import FID_EXPERIMENTS, FID_FRACTIONS, FIDEvaluator, label, plot, sample_count
from anytime.experiments.runner import Runner, digest
from anytime.experiments.statistics import all_below, values
from anytime.metrics.code_stats import bits_by_position
from anytime.model import AnytimeModel
from anytime.training.sample_grids import encode_dataset

SERIES = {"transformer": "ordered", "lstm": "lstm", "pixelcnn": "pixelcnn"}
"""Each prior and its kind of run."""
EXAMPLES = 10_000  # held-out pictures behind the bits, at most
SHORT = 0.2


def compute(runner: Runner) -> Results:
    """FID of every prior at every fraction, and the bits that it needs for a held-out code."""
    s, rows = runner.context, list[Row]()
    x = s.dataset.held_out[:EXAMPLES]
    evaluator = FIDEvaluator(runner, sample_count(s))
    runner.announce([(variant, seed) for seed in s.seeds for variant in SERIES.values()], ("", "bits"), FID_EXPERIMENTS)
    for seed in s.seeds:
        for series, variant in SERIES.items():
            measure = partial(bits_row, series, seed, x=x)
            rows += runner.measure_run(variant, seed, {"x": digest(x)}, measure, part="bits")
            rows += [{**row, "series": series} for row in evaluator.evaluate(variant, seed)]
    return runner.results(rows, decide(rows), [evaluator.note(), f"bits of {len(x):,} held-out pictures"])


def bits_row(series: str, seed: int, model: AnytimeModel, x: UInt8[Tensor, "n channel height width"]) -> list[Row]:
    """How well the prior knows codes, and how large it is."""
    bits = mean(bits_by_position(model.prior, encode_dataset(model.autoencoder, x)))
    weights = sum(parameter.numel() for parameter in model.prior.parameters())
    return [{"series": series, "seed": seed, "bits_per_code": bits, "examples": len(x), "weights": weights}]


def decide(rows: list[Row]) -> list[Verdict]:
    """Where the PixelCNN is behind, and where not."""
    name, found = distance_name(rows), label(rows)

    def at(series: str, fraction: float) -> list[float]:
        return values(rows, series, name, fraction=fraction)

    verdicts = []
    for other in ("transformer", "lstm"):
        pairs = {f"{f:g}": (at(other, f), at("pixelcnn", f)) for f in FID_FRACTIONS if f > SHORT}
        verdicts.append(
            Verdict(
                f"{found}: {other} below PixelCNN at 0.4, 0.6, 0.8 and 1.0 of the codes",
                *all_below(pairs),
                "models of 1D sequences are uniformly better at 0.4, 0.6, 0.8 and 1.0",
            )
        )
    pairs = {f"{other}, {SHORT:g}": (at("pixelcnn", SHORT), at(other, SHORT)) for other in ("transformer", "lstm")}
    return [
        *verdicts,
        Verdict(
            f"{found}: PixelCNN below both at {SHORT} of the codes",
            *all_below(pairs),
            "PixelCNN is inferior in all cases except at 0.2",
        ),
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for series, style in zip(SERIES, ("o-", "s-", "^-"), strict=True):
        plot(axes, results.rows, series, style)
    axes.set(xlabel="fraction of the codes", ylabel=label(results.rows), title=results.dataset, ylim=(0, None))
    axes.legend()
    return write_figure(path, figure)
