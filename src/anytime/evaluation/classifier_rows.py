"""Samples as a classifier of real pictures sees them, by code length: recognised beyond doubt, of all classes, as varied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anytime.core.errors import UserError
from anytime.data import Dataset
from anytime.data.cache import cache_folder
from anytime.data.labels import Labels
from anytime.metrics import feature_stats
from anytime.metrics.feature_stats import Statistics, gathered
from anytime.metrics.image_classifier import RELIABLE, ClassifierConfig, ClassifierNetwork, recognised, trained_classifier
from anytime.metrics.quality import Row, compared
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count
from anytime.training.log import Reporter, Silent


def recognition_rows(
    model: AnytimeModel,
    dataset: Dataset,
    labels: Labels,
    fractions: Sequence[float],
    samples: int,
    *,
    seed: int = 0,
    temperature: float | str = 1.0,
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
    reporter, config = reporter or Silent(), config or ClassifierConfig()
    network = trained_classifier(dataset, labels, config, model.device, reporter, cache)
    accuracy = network.accuracy(dataset.test, labels.test)
    about: Row = {"series": "classifier", "accuracy": accuracy, "examples": len(dataset.test), "train": len(dataset.train)}
    if accuracy < RELIABLE:
        about["warning"] = (
            f"it names {accuracy:.2%} of the held-out pictures right, fewer than {RELIABLE:.0%}: its word is weak"
        )
    kept = (cache or cache_folder()) / "features"
    (real,), (train,) = (
        gathered(feature_stats.pictures(label, x), network, kept, reporter)
        for label, x in (("held-out", dataset.test), ("reference", dataset.pictures))
    )
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    source = feature_stats.samples("recognised", model, min(samples, feature_stats.KEPT), counts, seed, temperature)
    each = gathered(source, network, folder, reporter)
    drawn: Row = {"series": "recognised", "seed": seed, "temperature": temperature}
    return [
        about,
        {"series": "recognised data", **_seen(train, real, network)},
        *(
            {**drawn, "fraction": fraction, "codes": count, **_seen(found, real, network)}
            for fraction, count, found in zip(fractions, counts, each, strict=True)
        ),
    ]


def _seen(found: Statistics, real: Statistics, network: ClassifierNetwork) -> Row:
    # As many of each: recall grows with their number.
    found, real = (replace(known, kept=known.kept[: feature_stats.KEPT]) for known in (found, real))
    seen = recognised(network.chances(found.kept))
    return {"sure": seen.sure, "shares": seen.shares, **compared(found, real, network)}
