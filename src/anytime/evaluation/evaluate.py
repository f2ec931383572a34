"""Everything that is measured of a finished model, as rows of numbers told apart by their `series`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from anytime.autoencoders.quantizer import codebook_usage
from anytime.core.errors import UserError
from anytime.core.progress import Reporter, SilentReporter
from anytime.core.random import derive, permutation
from anytime.data import Dataset
from anytime.data.labels import ImageLabels
from anytime.data.loader import to_uint8
from anytime.evaluation.classifier_rows import classifier_rows
from anytime.metrics.code_stats import bits_by_position, entropy_by_position, error_by_codes, gains
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.image_classifier import ClassifierConfig
from anytime.metrics.latency import REPEATS, TimedSampler, latency_by_codes
from anytime.metrics.precision_recall import compare_nearest, nearest_images
from anytime.metrics.quality import Row, data_row, reconstruction_rows, reference_statistics, sample_rows
from anytime.model import AnytimeModel
from anytime.sampling import gumbel
from anytime.sampling.budget import code_count
from anytime.sampling.quality_table import QualityRow, QualityTable
from anytime.training.sample_grids import encode_dataset

FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
NEIGHBOUR_SAMPLES, NEIGHBOURS = 100, 3  # samples that are held against every training picture, and the nearest kept of each
MEMORISATION_SAMPLES, MEMORISATION_IMAGES = (
    1000,
    10_000,
)  # samples, and at most how many training and held-out pictures they are held against
ERROR_EXAMPLES = 2000  # held-out examples behind the error of every length: enough for three digits


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """How much is measured."""

    samples: int = 50_000
    """Samples behind FID, at every length."""
    fractions: tuple[float, ...] = FRACTIONS
    """Shares of the codes."""
    seed: int = 0
    temperature: float = 1.0
    """Of the samples."""
    repeats: int = REPEATS
    """Requests behind each speed, at most."""
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    """The judge of samples whose classes are known."""

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise UserError(f"--samples must be at least 2, for a covariance to exist, not {self.samples}")
        if not self.fractions or not all(0 < fraction <= 1 for fraction in self.fractions):
            text = ",".join(f"{fraction:g}" for fraction in self.fractions)
            raise UserError(f"--fractions {text!r} must be numbers above 0 and at most 1, such as 0.25,0.5,1")
        if not 0 <= self.seed < 1 << 63:
            raise UserError(f"--seed must be between 0 and 2^63 - 1, not {self.seed}")
        gumbel.SamplingSettings(temperature=self.temperature)  # says what is wrong with it


def check_shape(model: AnytimeModel, dataset: Dataset) -> None:
    """Refuse data that the model was not made for."""
    ours, theirs = model.config.autoencoder.shape, dataset.shape
    if ours != theirs:
        raise UserError(
            f"the model makes {'sounds' if model.is_audio else 'images'} of {_shape_text(ours)}, "
            f"{dataset.name} has {'sounds' if dataset.is_audio else 'images'} of {_shape_text(theirs)}; "
            f"name the set it was trained on with --dataset and --data"
        )


def _shape_text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def evaluate_images(
    model: AnytimeModel,
    dataset: Dataset,
    network: FeatureNetwork,
    settings: EvaluationSettings,
    *,
    labels: ImageLabels | None = None,
    folder: Path | None = None,
    cache: Path | None = None,
    reporter: Reporter | None = None,
) -> list[Row]:
    """All rows: `samples` and `reconstructions` by fraction, `held-out data`, `error` by code count, `bits` by position,
    `codes`, `neighbours`, `copies`, and `speed` by fraction; with `labels` what a classifier trained on them thinks of samples.

    In `folder` is kept what a killed call goes on with when repeated, in `cache` what depends on the data alone.
    """
    reporter = reporter or SilentReporter()
    check_shape(model, dataset)
    x, fractions = dataset.held_out, settings.fractions
    real = reference_statistics(dataset.published_train, network, cache, reporter)
    rows = sample_rows(
        model, fractions, settings.samples, real, network,
        seed=settings.seed, temperature=settings.temperature, folder=folder, reporter=reporter,
    )  # fmt: skip
    rows += reconstruction_rows(model, x, fractions, real, network, folder=folder, reporter=reporter)
    rows.append(data_row(x, real, network, cache, reporter))
    rows += error_rows(model, dataset, reporter)
    rows += code_rows(model, dataset)
    if labels is not None:
        rows += classifier_rows(
            model, dataset, labels, fractions, settings.samples,
            seed=settings.seed, temperature=settings.temperature, config=settings.classifier,
            folder=folder, cache=cache, reporter=reporter,
        )  # fmt: skip
    rows += [neighbour_row(model, dataset, settings), memorisation_row(model, dataset, settings)]
    rows += speed_rows(model, settings, reporter)
    return rows


def quality_table(rows: Sequence[Row], facts: Mapping[str, Any], scale: Literal["smoke", "full"]) -> QualityTable:
    """The rows by number of codes, for the model to choose from; `facts` are those of the evaluation."""
    by_series: dict[str, dict[int, Row]] = {}
    for row in rows:
        if "codes" in row:
            by_series.setdefault(row["series"], {})[row["codes"]] = row
    errors, sampled, latencies = (by_series[name] for name in ("error", "samples", "speed"))
    length = max(errors)
    found = [
        QualityRow(
            codes=count,
            fraction=count / length,
            error=errors[count]["error"],
            fid=sampled.get(count, {}).get("fid"),
            latency_ms=1000 * latencies[count]["seconds_p50"] if count in latencies else None,
        )
        for count in range(1, length + 1)
    ]
    return QualityTable(
        model=facts["model"],
        scale=scale,
        rows=tuple(found),
        data=facts["data"],
        examples=errors[length]["examples"],
        samples=next(iter(sampled.values()))["samples"],
        batch=next(iter(latencies.values()))["batch"],
        engine=facts["engine"],
        hardware=facts["hardware"],
        date=facts["date"],
    )


def error_rows(model: AnytimeModel, dataset: Dataset, reporter: Reporter) -> list[Row]:
    """Held-out reconstruction error from 0, 1, …, length codes, and Δ(i), what code i brings (Fig. 3)."""
    x = dataset.held_out[:ERROR_EXAMPLES]
    reporter.stage("errors", 0, len(x))
    errors = error_by_codes(model, x, range(model.length + 1), lambda done: reporter.progress(done, {}))
    drops = [None, *gains(errors)]
    return [
        {"series": "error", "codes": count, "error": error, "gain": gain, "examples": len(x)}
        for count, (error, gain) in enumerate(zip(errors, drops, strict=True))
    ]


def code_rows(model: AnytimeModel, dataset: Dataset) -> list[Row]:
    """Bits of each held-out code under the prior and on its own, and how much of the codebook the codes use."""
    model.eval()
    codes = encode_dataset(model.autoencoder, dataset.held_out)
    bits, entropy = bits_by_position(model.prior, codes), entropy_by_position(codes, model.codebook_size)
    use = codebook_usage(torch.bincount(codes.flatten(), minlength=model.codebook_size))
    totals = {"bits": sum(bits), "bits_per_code": sum(bits) / len(bits), "codebook_size": model.codebook_size}
    return [
        *(
            {"series": "bits", "position": position, "bits": b, "entropy": h, "examples": len(codes)}
            for position, (b, h) in enumerate(zip(bits, entropy, strict=True), start=1)
        ),
        {"series": "codes", **totals, **asdict(use), "examples": len(codes)},
    ]


def neighbour_row(model: AnytimeModel, dataset: Dataset, settings: EvaluationSettings) -> Row:
    """Whether samples are copies: how far they are from the nearest training picture, beside held-out pictures' distance."""
    train = dataset.published_train
    x = to_uint8(model.sample(NEIGHBOUR_SAMPLES, seed=settings.seed, temperature=settings.temperature).data)
    near, far = (nearest_images(part, train, NEIGHBOURS, model.device) for part in (x, dataset.held_out[:NEIGHBOUR_SAMPLES]))
    return {
        "series": "neighbours",
        "seed": settings.seed,
        "temperature": settings.temperature,
        "samples": len(x),
        "reference": len(train),
        "distance": float(near.distance[:, 0].median()),
        "held_out_distance": float(far.distance[:, 0].median()),
        "least_distance": float(near.distance.min()),
        "nearest": near.index.tolist(),
    }


def memorisation_row(model: AnytimeModel, dataset: Dataset, settings: EvaluationSettings) -> Row:
    """Whether samples are nearer to pictures that the model learned from than to as many that it never saw.

    Distances alone cannot tell, as smooth samples are near to everything. Where nothing is copied, half of the samples are
    nearer to a training picture; or as many as of the validation pictures, where the test pictures are of another kind.
    """
    count, sample_count = (
        min(MEMORISATION_IMAGES, len(dataset.held_out), len(dataset.train)),
        min(MEMORISATION_SAMPLES, settings.samples),
    )
    seen, unseen = (part[permutation(len(part), settings.seed)[:count]] for part in (dataset.images, dataset.held_out))
    x = to_uint8(model.sample(sample_count, seed=derive(settings.seed, "copies"), temperature=settings.temperature).data)
    near, far, closer_fraction = compare_nearest(x, seen, unseen, model.device)
    control = (
        None if dataset.test is None else compare_nearest(dataset.validation[:sample_count], seen, unseen, model.device)[2]
    )
    return {
        "series": "memorisation",
        "seed": settings.seed,
        "temperature": settings.temperature,
        "samples": sample_count,
        "images": count,
        "seen_distance": near,
        "unseen_distance": far,
        "nearer_to_seen": closer_fraction,
        "validation_nearer_to_seen": control,
    }


def speed_rows(model: AnytimeModel, settings: EvaluationSettings, reporter: Reporter) -> list[Row]:
    """Samples a second at the paper's batch, and the decoder's part of the time (Fig. 4b)."""
    counts = [code_count(model.length, fraction=fraction) for fraction in settings.fractions]
    reporter.stage("speed", 0, settings.repeats)
    found = latency_by_codes(
        TimedSampler(model), counts, repeats=settings.repeats, progress=lambda done: reporter.progress(done, {})
    )
    return [
        {
            "series": "speed",
            "fraction": fraction,
            "codes": speed.codes,
            "batch": speed.batch,
            "samples_per_second": speed.samples_per_second,
            "seconds_p50": speed.p50,
            "seconds_p95": speed.p95,
            "draw_seconds": speed.draw,
            "decode_seconds": speed.decode,
            "decode_fraction": speed.decode_fraction,
            "repeats": speed.repeats,
        }
        for fraction, speed in zip(settings.fractions, found, strict=True)
    ]
