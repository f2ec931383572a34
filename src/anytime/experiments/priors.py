"""Appendix C.2: Transformer, LSTM and PixelCNN on the same ordered codes, FID by code length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from anytime.core import storage
from anytime.core.errors import UserError
from anytime.core.results import Results, Row, Verdict, select
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_by_fraction, fid_figure, fid_label
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.runner import RunMeasurement, Runner, digest
from anytime.experiments.statistics import verdict_below
from anytime.metrics.code_stats import bits_by_position, encode_dataset
from anytime.model import AnytimeModel

SERIES = {"transformer": "ordered", "lstm": "lstm", "pixelcnn": "pixelcnn"}
"""Prior -> variant."""
EXAMPLES = 10_000  # held-out images for the bits, at most
SHORT = 0.2


def measure(runner: Runner) -> list[Row]:
    """Return FID of every prior at every fraction, and its bits for a held-out code."""
    x, evaluator = runner.context.dataset.held_out[:EXAMPLES], FIDEvaluator(runner)
    runner.notes.append(f"bits of {len(x):,} held-out images")
    facts, runs = {"x": digest(x)}, list[RunMeasurement]()
    for seed in runner.context.seeds:
        for series, variant in SERIES.items():
            labels = {"series": series, "seed": seed}
            bits = RunMeasurement(variant, seed, partial(bits_row, x=x), facts, part="bits", labels=labels)
            runs += [bits, evaluator.measurement(variant, seed, labels)]
    rows = runner.measure_runs(runs)
    check_same_codes(rows)
    return rows


def check_same_codes(rows: Sequence[Row]) -> None:
    """Refuse priors that were trained on the codes of different autoencoders, as on machines without each other's runs."""
    for seed in {row["seed"] for row in rows}:
        own = select(rows, seed=seed)
        models = {series: {row["model"] for row in select(own, series=series)} for series in SERIES}
        autoencoders = {row.get("autoencoder") for row in own if "bits_per_code" in row}
        if len(autoencoders) > 1 or any(len(digests) > 1 for digests in models.values()):
            raise UserError(
                f"the measurements of seed {seed} are of different trainings; remove those of {', '.join(SERIES.values())}, "
                "and train and measure the three in one runs directory"
            )


def bits_row(model: AnytimeModel, x: UInt8[Tensor, "n channel height width"]) -> list[Row]:
    """Return the prior's bits per code and its number of weights."""
    bits = mean(bits_by_position(model.prior, encode_dataset(model.autoencoder, x)))
    weights = sum(parameter.numel() for parameter in model.prior.parameters())
    autoencoder = storage.digest(model.autoencoder.state_dict())[:16]
    return [{"bits_per_code": bits, "examples": len(x), "weights": weights, "autoencoder": autoencoder}]


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide where PixelCNN is worse, and where not."""
    label, others = fid_label(rows), ("transformer", "lstm")
    at = {series: fid_by_fraction(rows, series) for series in SERIES}
    worse = [
        verdict_below(
            f"{label}: {other} below PixelCNN at 0.4, 0.6, 0.8 and 1.0 of the codes",
            "models of 1D sequences are uniformly better at 0.4, 0.6, 0.8 and 1.0",
            {f"{f:g}": (at[other][f], at["pixelcnn"][f]) for f in PAPER_FRACTIONS if f > SHORT},
        )
        for other in others
    ]
    better = verdict_below(
        f"{label}: PixelCNN below both at {SHORT} of the codes",
        "PixelCNN is inferior in all cases except at 0.2",
        {f"{other}, {SHORT:g}": (at["pixelcnn"][SHORT], at[other][SHORT]) for other in others},
    )
    return [*worse, better]


def draw(results: Results) -> Any:
    """Draw FID by code length."""
    return fid_figure(results, dict(zip(SERIES, ("o-", "s-", "^-"), strict=True)))
