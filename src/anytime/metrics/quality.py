"""How good pictures and sounds are, as rows of numbers: FID, KID, precision and recall, by code length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anytime.core.pause import NEVER, Pause
from anytime.core.progress import Reporter
from anytime.data.dataset import Examples
from anytime.data.download import cache_dir
from anytime.metrics import feature_stats
from anytime.metrics.feature_stats import FeatureStatistics, compute_statistics
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.fid import frechet_distance
from anytime.metrics.precision_recall import compute_kid, compute_precision_recall
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

Row = dict[str, Any]


def reference_statistics(
    x: Examples,
    network: FeatureNetwork,
    cache: Path | None = None,
    reporter: Reporter | None = None,
    pause: Pause = NEVER,
) -> FeatureStatistics:
    """Statistics of the set that others are compared with, kept in the cache: 50,000 pictures take half a GPU minute."""
    (found,) = compute_statistics(
        feature_stats.images("reference", x), network, (cache or cache_dir()) / "features", reporter, pause
    )
    return found


def compute_metrics(found: FeatureStatistics, real: FeatureStatistics, network: FeatureNetwork) -> Row:
    """The numbers of one set of pictures against another. Lower is better, save for precision and recall."""
    kept, theirs = (known.kept.to(network.device) for known in (found, real))
    kid, cover = compute_kid(kept, theirs), compute_precision_recall(kept, theirs)
    row: Row = {
        network.distance: frechet_distance(found.moments, real.moments),
        f"kid{network.suffix}": kid.mean,
        f"kid_sd{network.suffix}": kid.std,
        f"precision{network.suffix}": cover.precision,
        f"recall{network.suffix}": cover.recall,
        "samples": found.moments.count,
        "reference": real.moments.count,
        "kept": min(len(kept), len(theirs)),  # features behind precision and recall; KID's subsets are drawn from them
        "kid_subset": kid.subset,
        "network": network.name,
    }
    if (fewest := min(found.moments.count, real.moments.count)) <= network.size:
        row["warning"] = f"{fewest:,} samples are no more than the {network.size:,} features: {network.distance} reads too high"
    return row


def sample_rows(
    model: AnytimeModel,
    fractions: Sequence[float],
    samples: int,
    real: FeatureStatistics,
    network: FeatureNetwork,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    series: str = "samples",
    folder: Path | None = None,
    reporter: Reporter | None = None,
    pause: Pause = NEVER,
) -> list[Row]:
    """Quality of `samples` samples at every fraction of their codes; with `folder`, a killed call goes on when repeated."""
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    source = feature_stats.samples("samples", model, samples, counts, seed, temperature)
    each = compute_statistics(source, network, folder, reporter, pause)
    about = {"series": series, "seed": seed, "temperature": temperature}
    return [
        {**about, "fraction": fraction, "codes": count, **compute_metrics(found, real, network)}
        for fraction, count, found in zip(fractions, counts, each, strict=True)
    ]


def reconstruction_rows(
    model: AnytimeModel,
    x: Examples,
    fractions: Sequence[float],
    real: FeatureStatistics,
    network: FeatureNetwork,
    *,
    series: str = "reconstructions",
    folder: Path | None = None,
    reporter: Reporter | None = None,
) -> list[Row]:
    """Quality of pictures decoded from every fraction of their true codes: what the autoencoder alone allows."""
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    source = feature_stats.reconstructions("reconstructions", model, x, counts)
    return [
        {"series": series, "fraction": fraction, "codes": count, **compute_metrics(found, real, network)}
        for fraction, count, found in zip(fractions, counts, compute_statistics(source, network, folder, reporter), strict=True)
    ]


def data_row(
    x: Examples,
    real: FeatureStatistics,
    network: FeatureNetwork,
    cache: Path | None = None,
    reporter: Reporter | None = None,
    pause: Pause = NEVER,
) -> Row:
    """Quality of real held-out pictures: what a perfect model would reach (FID 3.15 for CIFAR-10's test set)."""
    (found,) = compute_statistics(
        feature_stats.images("held-out", x), network, (cache or cache_dir()) / "features", reporter, pause
    )
    return {"series": "held-out data", **compute_metrics(found, real, network)}
