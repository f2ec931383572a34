"""Evaluation of a finished model of images or audio: one sequence of measurements, with an adapter for each modality."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from anytime.autoencoders.quantizer import codebook_usage
from anytime.core.errors import UserError
from anytime.core.progress import Reporter, WholeReporter, default_reporter
from anytime.core.results import Row, select
from anytime.data import Dataset
from anytime.data.audio_io import SAMPLE_RATE
from anytime.evaluation.summary import Summary
from anytime.metrics.code_stats import bits_by_position, encode_dataset, entropy_by_position
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.latency import REPEATS, TimedSampler, latency_by_codes
from anytime.metrics.quality import data_row, reconstruction_rows, reference_statistics, sample_rows
from anytime.model import AnytimeModel
from anytime.sampling import gumbel
from anytime.sampling.budget import code_count
from anytime.sampling.quality_table import QualityRow, QualityTable

MIN_EXAMPLES = 2
"""Fewest training and held-out examples, for a covariance to exist."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """How much is measured."""

    samples: int
    """Samples for the distances, at every code count."""
    fractions: tuple[float, ...]
    """Fractions of the codes to decode from."""
    seed: int = 0
    temperature: float = 1.0
    repeats: int = REPEATS
    """Largest number of requests for each latency."""
    smoke: bool = False
    """Whether warnings are usual, because the model or the measurement is of smoke scale."""

    def __post_init__(self) -> None:
        if self.samples < MIN_EXAMPLES:
            raise UserError(f"`samples` must be at least {MIN_EXAMPLES}, for a covariance to exist, not {self.samples}")
        if not self.fractions or not all(0 < fraction <= 1 for fraction in self.fractions):
            text = ",".join(f"{fraction:g}" for fraction in self.fractions)
            raise UserError(f"`fractions` {text!r} must be numbers above 0 and at most 1, such as 0.25,0.5,1")
        if not 0 <= self.seed < 1 << 63:
            raise UserError(f"`seed` must be between 0 and 2^63 - 1, not {self.seed}")
        gumbel.SamplingSettings(temperature=self.temperature)  # checks the temperature


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where an evaluation keeps partial results, and where it reports."""

    reporter: Reporter = field(default_factory=default_reporter)
    folder: Path | None = None  # what a killed evaluation resumes from
    cache: Path | None = None  # what depends on the data alone


@dataclass(frozen=True)
class Adapter(ABC):
    """What an evaluation needs; subclasses have what differs between images and audio."""

    model: AnytimeModel
    dataset: Dataset
    network: FeatureNetwork
    """Feature network on which sets are compared."""
    settings: EvaluationSettings
    latency_batch: ClassVar[int]
    """Samples in a timed request."""

    @abstractmethod
    def error_rows(self, workspace: Workspace) -> list[Row]:
        """Return the reconstruction error from 0, 1, …, length codes."""

    def extra_rows(self, workspace: Workspace) -> list[Row]:
        """Return the metrics of this modality alone."""
        return []

    @abstractmethod
    def summary(self, rows: Sequence[Row], folder: Path) -> Summary:
        """Return tables, notes and figures; clips are written to the folder."""


def check_shape(model: AnytimeModel, dataset: Dataset) -> None:
    """Refuse data of another shape than the model's."""
    ours, theirs = (" x ".join(map(str, shape)) for shape in (model.config.autoencoder.shape, dataset.shape))
    if ours != theirs:
        raise UserError(
            f"the model makes {'audio' if model.is_audio else 'images'} of {ours}, "
            f"{dataset.name} has {'audio' if dataset.is_audio else 'images'} of {theirs}; "
            f"name the dataset it was trained on with `dataset` and `data`"
        )


def check_examples(dataset: Dataset) -> None:
    """Refuse data with too few examples for a covariance."""
    train = len(dataset.train)
    counts = {
        "training": train if train >= MIN_EXAMPLES else len(dataset.published_train),  # a recording may have several crops
        "held-out": len(dataset.held_out),
    }
    for part, count in counts.items():
        if count < MIN_EXAMPLES:
            examples = f"{MIN_EXAMPLES} {part} {'crops' if dataset.is_audio else 'images'}"
            raise UserError(f"an evaluation needs at least {examples}, and {dataset.name} has {count}; add some to `data`")


def evaluate(adapter: Adapter, workspace: Workspace) -> list[Row]:
    """Return all rows, distinguished by `series`.

    `samples` and `reconstructions` by fraction, `held-out data`, `error` by code count, `bits` by position, `codes`, the
    adapter's own rows, and `speed` by fraction.
    """
    model, dataset, network, settings = adapter.model, adapter.dataset, adapter.network, adapter.settings
    check_shape(model, dataset)
    check_examples(dataset)
    workspace = replace(workspace, reporter=WholeReporter(workspace.reporter, _planned(adapter)))
    folder, cache, reporter = workspace.folder, workspace.cache, workspace.reporter
    real = reference_statistics(dataset.published_train, network, cache, reporter)
    return [
        *sample_rows(
            model, settings.fractions, settings.samples, real, network,
            seed=settings.seed, temperature=settings.temperature, folder=folder, reporter=reporter,
        ),
        *reconstruction_rows(model, dataset.held_out, settings.fractions, real, network, folder=folder, reporter=reporter),
        data_row(dataset.held_out, real, network, cache, reporter),
        *adapter.error_rows(workspace),
        *code_rows(model, dataset),
        *adapter.extra_rows(workspace),
        *speed_rows(model, settings, reporter, adapter.latency_batch),
    ]  # fmt: skip


def _planned(adapter: Adapter) -> dict[str, int]:
    """Return the stages in which examples pass through the feature network, with their number: nearly all of the time."""
    dataset, settings = adapter.dataset, adapter.settings
    held_out, fractions = len(dataset.held_out), len(settings.fractions)
    counts = (len(dataset.published_train), settings.samples * fractions, held_out * fractions, held_out)
    return dict(zip(("reference", "samples", "reconstructions", "held-out"), counts, strict=True))


def code_rows(model: AnytimeModel, dataset: Dataset) -> list[Row]:
    """Bits of each held-out code under the prior, its entropy, and the usage of the codebook."""
    model.eval()
    codes = encode_dataset(model.autoencoder, dataset.held_out)
    bits, entropy = bits_by_position(model.prior, codes), entropy_by_position(codes, model.codebook_size)
    usage = codebook_usage(torch.bincount(codes.flatten(), minlength=model.codebook_size))
    totals = {"bits": sum(bits), "bits_per_code": sum(bits) / len(bits), "codebook_size": model.codebook_size}
    positions = [
        {"series": "bits", "position": position, "bits": b, "entropy": h, "examples": len(codes)}
        for position, (b, h) in enumerate(zip(bits, entropy, strict=True), start=1)
    ]
    return [*positions, {"series": "codes", **totals, **asdict(usage), "examples": len(codes)}]


def speed_rows(model: AnytimeModel, settings: EvaluationSettings, reporter: Reporter, batch: int, **facts: str) -> list[Row]:
    """Latency and throughput by fraction of the codes (Fig. 4b); for audio also the real-time factor."""
    counts = [code_count(model.length, fraction=fraction) for fraction in settings.fractions]
    reporter.stage("speed", 0, settings.repeats)
    found = latency_by_codes(
        TimedSampler(model), counts, batch=batch, repeats=settings.repeats, progress=lambda done: reporter.progress(done, {})
    )
    clip_seconds = model.config.autoencoder.shape[-1] / SAMPLE_RATE if model.is_audio else None
    return [
        {
            "series": "speed",
            **facts,
            "engine": model.engine.name,
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
        | ({} if clip_seconds is None else {"real_time_factor": speed.p50 / clip_seconds})
        for fraction, speed in zip(settings.fractions, found, strict=True)
    ]


def quality_table(rows: Sequence[Row], facts: Mapping[str, Any], scale: Literal["smoke", "full"]) -> QualityTable:
    """Return the model's quality table from the rows by code count; `facts` describe the evaluation."""
    errors, sampled, latencies = (
        {row["codes"]: row for row in select(rows, series=series)} for series in ("error", "samples", "speed")
    )
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
