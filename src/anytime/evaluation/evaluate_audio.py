"""Everything that is measured of a finished model of sound, as rows of numbers told apart by their `series`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Int16
from torch import Tensor

from anytime.core.pause import NEVER, Pause
from anytime.core.progress import Reporter, SilentReporter
from anytime.data import Dataset
from anytime.data.audio_io import SAMPLE_RATE
from anytime.evaluation.evaluate import EvaluationSettings, check_shape, code_rows
from anytime.metrics import feature_stats
from anytime.metrics.audio import BANDS, codes_to_half_error, reconstruction_error_rows
from anytime.metrics.audio_classifier import nearest_distances
from anytime.metrics.audio_features import AudioFeatures
from anytime.metrics.feature_stats import FeatureStatistics, compute_statistics
from anytime.metrics.latency import TimedSampler, latency_by_codes
from anytime.metrics.quality import Row, compute_metrics, reference_statistics
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

FRACTIONS = (0.0625, 0.25, 0.5, 1.0)
"""The paper's 1/16, 1/4 and 1, and a half."""
SAMPLES = 5000
AUDIO_ERROR_EXAMPLES = 500  # held-out crops behind the distances at every length, evenly spread over the voices


def evaluate_audio(
    model: AnytimeModel,
    dataset: Dataset,
    audio_features: AudioFeatures,
    settings: EvaluationSettings,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
    reporter: Reporter | None = None,
) -> list[Row]:
    """All rows: `samples` and `reconstructions` by fraction, `held-out data`, `error` by code count, `half-way` by band, `bits`
    by position, `codes`, and `speed` by fraction.

    In `folder` is kept what a killed call goes on with when repeated, in `cache` what depends on the data alone.
    """
    reporter = reporter or SilentReporter()
    check_shape(model, dataset)
    real = reference_statistics(dataset.published_train, audio_features, cache, reporter)
    rows = sample_rows(model, settings, real, audio_features, folder=folder, reporter=reporter)
    rows += reconstruction_rows(model, dataset, settings.fractions, real, audio_features, folder=folder, reporter=reporter)
    rows.append(data_row(dataset, real, audio_features, reporter))
    errors = error_rows(model, dataset, reporter)
    rows += errors + half_error_rows(errors)
    rows += code_rows(model, dataset)
    rows += speed_rows(model, settings, reporter)
    return rows


def sample_rows(
    model: AnytimeModel,
    settings: EvaluationSettings,
    real: FeatureStatistics,
    audio_features: AudioFeatures,
    *,
    folder: Path | None = None,
    reporter: Reporter | None = None,
    pause: Pause = NEVER,
) -> list[Row]:
    """How far samples are from the training set at every fraction of their codes; of digits, how many are recognised."""
    counts = [code_count(model.length, fraction=fraction) for fraction in settings.fractions]
    how = settings.seed, settings.temperature
    source = feature_stats.samples("samples", model, settings.samples, counts, *how)
    each = compute_statistics(source, audio_features, folder, reporter, pause)
    about = {"series": "samples", "seed": settings.seed, "temperature": settings.temperature}
    return [
        {**about, "fraction": fraction, "codes": count, **audio_metrics(found, real, audio_features)}
        for fraction, count, found in zip(settings.fractions, counts, each, strict=True)
    ]


def reconstruction_rows(
    model: AnytimeModel,
    dataset: Dataset,
    fractions: Sequence[float],
    real: FeatureStatistics,
    audio_features: AudioFeatures,
    *,
    folder: Path | None = None,
    reporter: Reporter | None = None,
) -> list[Row]:
    """The same of held-out sounds decoded from their true codes: what the autoencoder alone allows."""
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    source = feature_stats.reconstructions("reconstructions", model, dataset.held_out, counts)
    each = compute_statistics(source, audio_features, folder, reporter)
    return [
        {"series": "reconstructions", "fraction": fraction, "codes": count, **audio_metrics(found, real, audio_features)}
        for fraction, count, found in zip(fractions, counts, each, strict=True)
    ]


def data_row(dataset: Dataset, real: FeatureStatistics, audio_features: AudioFeatures, reporter: Reporter) -> Row:
    """The same of held-out sounds themselves: what a perfect model would reach."""
    (found,) = compute_statistics(feature_stats.images("held-out", dataset.held_out), audio_features, None, reporter)
    return {
        "series": "held-out data",
        **audio_metrics(found, real, audio_features),
        "accuracy": audio_features.accuracy,
        "accuracy_examples": audio_features.examples,
    }


def audio_metrics(found: FeatureStatistics, real: FeatureStatistics, audio_features: AudioFeatures) -> Row:
    """Distances on the network's features; how many digits it recognises; how near samples are to the training set.

    `nearest` is the median distance to the nearest training example, `nearest_p01` that of the nearest hundredth: a model that
    copies has smaller ones than held-out data.
    """
    kept, theirs = (known.kept.to(audio_features.device) for known in (found, real))
    near = nearest_distances(kept, theirs).double().cpu()
    row = {
        **compute_metrics(found, real, audio_features),
        "nearest": float(near.median()),
        "nearest_p01": float(near.quantile(0.01)),
    }
    if audio_features.spoken_digits:
        predictions = audio_features.predictions(kept)
        row |= {"classified": predictions.recognised, "by_digit": predictions.by_digit}
    return row


def error_rows(model: AnytimeModel, dataset: Dataset, reporter: Reporter, examples: int = AUDIO_ERROR_EXAMPLES) -> list[Row]:
    """Distances of held-out reconstructions from 0, 1, …, length codes."""
    x = evenly_spaced(dataset.held_out, examples)
    reporter.stage("errors", 0, len(x))
    return reconstruction_error_rows(model, x, range(model.length + 1), lambda done: reporter.progress(done, {}))


def evenly_spaced(x: Int16[Tensor, "n 1 time"], count: int) -> Int16[Tensor, "few 1 time"]:
    """At most `count` of them, evenly spread: voices lie one behind the other."""
    return x if len(x) <= count else x[torch.linspace(0, len(x) - 1, count).long()]


def half_error_rows(errors: Sequence[Row]) -> list[Row]:
    """For each band, the number of codes that halves its error."""
    return [{"series": "half-way", "band": band, "codes": codes_to_half_error([row[band] for row in errors])} for band in BANDS]


def speed_rows(model: AnytimeModel, settings: EvaluationSettings, reporter: Reporter, **about: str) -> list[Row]:
    """Seconds for one sound, and how many that is for each second of it."""
    counts = [code_count(model.length, fraction=fraction) for fraction in settings.fractions]
    reporter.stage("speed", 0, settings.repeats)
    sampler = TimedSampler(model)
    found = latency_by_codes(
        sampler, counts, batch=1, repeats=settings.repeats, progress=lambda done: reporter.progress(done, {})
    )
    clip_seconds = model.config.autoencoder.shape[-1] / SAMPLE_RATE
    return [
        {
            "series": "speed",
            **about,
            "engine": model.engine.name,
            "fraction": fraction,
            "codes": speed.codes,
            "seconds_p50": speed.p50,
            "seconds_p95": speed.p95,
            "real_time_factor": speed.p50 / clip_seconds,
            "decode_seconds": speed.decode,
            "repeats": speed.repeats,
        }
        for fraction, speed in zip(settings.fractions, found, strict=True)
    ]
