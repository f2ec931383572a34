"""Quality of sets of examples against real data: Fréchet distance, KID, precision and recall, by code count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anytime.core.pause import NEVER, Pause
from anytime.core.progress import Reporter
from anytime.core.results import Row
from anytime.data.dataset import Examples
from anytime.data.download import cache_dir
from anytime.metrics import feature_stats
from anytime.metrics.feature_stats import FeatureStatistics, compute_statistics
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.fid import frechet_distance
from anytime.metrics.kid import compute_kid
from anytime.metrics.precision_recall import compute_precision_recall
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count


def quality_row(found: FeatureStatistics, real: FeatureStatistics, network: FeatureNetwork) -> Row:
    """Compare a set with a reference set; most keys of the row end in the network's suffix.

    Lower is better, except for precision and recall. `kept` counts the features for these; KID's subsets are taken from them.
    """
    kept, reference = (known.kept.to(network.device) for known in (found, real))
    kid, coverage = compute_kid(kept, reference), compute_precision_recall(kept, reference)
    row = {
        **network.extra_metrics(kept, reference),
        network.distance: frechet_distance(found.moments, real.moments),
        f"kid{network.suffix}": kid.mean,
        f"kid_sd{network.suffix}": kid.std,
        f"precision{network.suffix}": coverage.precision,
        f"recall{network.suffix}": coverage.recall,
        "samples": found.moments.count,
        "reference": real.moments.count,
        "kept": min(len(kept), len(reference)),
        "kid_subset": kid.subset,
        "network": network.name,
    }
    if (fewest := min(found.moments.count, real.moments.count)) <= network.size:
        row["warning"] = f"{network.distance} is too high: {fewest:,} samples for {network.size:,} features"
    return row


def reference_statistics(
    x: Examples,
    network: FeatureNetwork,
    cache: Path | None = None,
    reporter: Reporter | None = None,
    pause: Pause = NEVER,
    label: str = "reference",
) -> FeatureStatistics:
    """Return the statistics of a dataset, from the cache if they are there: 50,000 images take half a GPU minute."""
    folder = (cache or cache_dir()) / "features"
    (found,) = compute_statistics(feature_stats.examples(label, x), network, folder, reporter, pause)
    return found


def data_row(
    x: Examples,
    real: FeatureStatistics,
    network: FeatureNetwork,
    cache: Path | None = None,
    reporter: Reporter | None = None,
    pause: Pause = NEVER,
) -> Row:
    """Quality of held-out data, for reference (FID 3.15 for the 10,000 test images of CIFAR-10); not a lower bound."""
    found = reference_statistics(x, network, cache, reporter, pause, label="held-out")
    return {"series": "held-out data", **quality_row(found, real, network), **network.facts}


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
    """Quality of `samples` samples at every fraction of their codes; with `folder`, a killed call resumes when repeated."""
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    source = feature_stats.samples("samples", model, samples, counts, seed, temperature)
    each = compute_statistics(source, network, folder, reporter, pause)
    facts = {"series": series, "seed": seed, "temperature": temperature}
    return [
        {**facts, "fraction": fraction, "codes": count, **quality_row(found, real, network)}
        for fraction, count, found in zip(fractions, counts, each, strict=True)
    ]


def reconstruction_rows(
    model: AnytimeModel,
    x: Examples,
    fractions: Sequence[float],
    real: FeatureStatistics,
    network: FeatureNetwork,
    *,
    folder: Path | None = None,
    reporter: Reporter | None = None,
) -> list[Row]:
    """Quality of examples reconstructed from every fraction of their codes, for reference: no prior is involved."""
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    each = compute_statistics(feature_stats.reconstructions("reconstructions", model, x, counts), network, folder, reporter)
    return [
        {"series": "reconstructions", "fraction": fraction, "codes": count, **quality_row(found, real, network)}
        for fraction, count, found in zip(fractions, counts, each, strict=True)
    ]


def distance_name(rows: Sequence[Row]) -> str:
    """Return the key of the Fréchet distance in the rows: `fid`, or the name of another network's distance."""
    return next(
        (name for name in ("fid", "frechet_digits", "frechet_audio") if any(name in row for row in rows)), "frechet_random"
    )
