"""Samples as a classifier of real pictures sees them, by code length: recognised beyond doubt, of all classes, as varied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anytime.core.errors import UserError
from anytime.core.progress import Reporter, SilentReporter
from anytime.data import Dataset
from anytime.data.download import cache_dir
from anytime.data.labels import ImageLabels
from anytime.metrics import feature_stats
from anytime.metrics.feature_stats import FeatureStatistics, compute_statistics
from anytime.metrics.image_classifier import (
    MIN_ACCURACY,
    ClassifierConfig,
    ClassifierNetwork,
    confident_predictions,
    load_or_train_classifier,
)
from anytime.metrics.quality import Row, compute_metrics
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count


def classifier_rows(
    model: AnytimeModel,
    dataset: Dataset,
    labels: ImageLabels,
    fractions: Sequence[float],
    samples: int,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    config: ClassifierConfig | None = None,
    folder: Path | None = None,
    cache: Path | None = None,
    reporter: Reporter | None = None,
) -> list[Row]:
    """`classifier`: how good it is; `recognised data`: what real pictures reach; `recognised`: samples, by fraction.

    Samples are those that FID is made of, at most 10,000 of them; recall and precision are against the held-out pictures.
    """
    if dataset.test is None:
        raise UserError(f"--classifier compares with held-out pictures whose classes are known; {dataset.name} has none")
    reporter, config = reporter or SilentReporter(), config or ClassifierConfig()
    network = load_or_train_classifier(dataset, labels, config, model.device, reporter, cache)
    accuracy = network.accuracy(dataset.test, labels.test)
    about: Row = {"series": "classifier", "accuracy": accuracy, "examples": len(dataset.test), "train": len(dataset.train)}
    if accuracy < MIN_ACCURACY:
        about["warning"] = (
            f"it names {accuracy:.2%} of the held-out pictures right, fewer than {MIN_ACCURACY:.0%}: its word is weak"
        )
    kept = (cache or cache_dir()) / "features"
    (real,), (train,) = (
        compute_statistics(feature_stats.images(label, x), network, kept, reporter)
        for label, x in (("held-out", dataset.test), ("reference", dataset.images))
    )
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    source = feature_stats.samples("classified", model, min(samples, feature_stats.MAX_KEPT), counts, seed, temperature)
    each = compute_statistics(source, network, folder, reporter)
    about_samples: Row = {"series": "classified", "seed": seed, "temperature": temperature}
    return [
        about,
        {"series": "classified data", **_classifier_metrics(train, real, network)},
        *(
            {**about_samples, "fraction": fraction, "codes": count, **_classifier_metrics(found, real, network)}
            for fraction, count, found in zip(fractions, counts, each, strict=True)
        ),
    ]


def _classifier_metrics(found: FeatureStatistics, real: FeatureStatistics, network: ClassifierNetwork) -> Row:
    # As many of each: recall grows with their number.
    found, real = (replace(known, kept=known.kept[: feature_stats.MAX_KEPT]) for known in (found, real))
    predictions = confident_predictions(network.probabilities(found.kept))
    return {
        "classified": predictions.confident,
        "class_fractions": predictions.class_fractions,
        **compute_metrics(found, real, network),
    }
