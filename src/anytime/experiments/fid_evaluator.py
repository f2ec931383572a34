"""FID of runs by code length, measured once for all experiments that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from anytime.core.results import Results, Row, select
from anytime.experiments.plots import new_figure, plot_curve
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.experiments.runner import Checkpoint, RunMeasurement, Runner, digest
from anytime.experiments.statistics import values
from anytime.metrics.feature_stats import FeatureStatistics
from anytime.metrics.quality import distance_name, reference_statistics, sample_rows
from anytime.model import AnytimeModel

SAMPLES, SMOKE_SAMPLES = 10_000, 100
"""Number of samples of an ablation, and of a smoke run."""
FID_EXPERIMENTS = ("fid", "objective", "priors", "truncation", "regularization", "tailored")
"""Experiments that share their measurements."""


class FIDEvaluator:
    """Measures samples of runs against the published training set."""

    def __init__(self, runner: Runner, samples: int = SAMPLES) -> None:
        s = runner.context
        assert s.network is not None, "the command line loads it before any work"
        self.runner, self.network, self.count = runner, s.network, s.samples or (SMOKE_SAMPLES if s.smoke else samples)
        train = s.dataset.published_train
        self.facts = {"network": s.network.digest, "reference": digest(train)}
        fewer = f" (the paper's: {samples:,})" if samples != SAMPLES and self.count < samples else ""
        reference = f"{len(train):,} {'synthetic ' if s.dataset.synthetic else ''}training images"
        runner.notes.append(f"{self.count:,} samples{fewer} against {reference}")

    @cached_property
    def real(self) -> FeatureStatistics:
        """The statistics of the training set: half a GPU minute, which a cached experiment does not need."""
        s = self.runner.context
        return reference_statistics(s.dataset.published_train, self.network, reporter=s.reporter, pause=s.pause)

    def measurement(
        self,
        variant: str,
        seed: int,
        labels: Mapping[str, Any],
        *,
        full_length: bool = False,
        checkpoint: Checkpoint = "best",
    ) -> RunMeasurement:
        """Return the measurement of one run, sampled with the seed of its training; `full_length`: only with all codes."""
        # Other experiments need every fraction of the ordered and the unordered run, so those are measured anyway.
        shared = checkpoint == "best" and variant in ("ordered", "unordered")
        fractions = (1.0,) if full_length and not shared else PAPER_FRACTIONS
        scratch = f"{variant} {seed}" + (", last" if checkpoint == "last" else "")
        work = partial(self._rows, variant, seed, fractions, scratch)
        facts = {**self.facts, "samples": self.count, "fractions": fractions}
        where = {"fraction": 1.0} if full_length else {}
        equal_facts = [{"network": digest} for digest in self.network.equal_digests]
        return RunMeasurement(
            variant, seed, work, facts, checkpoint=checkpoint, equal_facts=equal_facts, shared_with=FID_EXPERIMENTS,
            where=where, labels=labels,
        )  # fmt: skip

    def measure_series(self, series: Mapping[str, str]) -> list[Row]:
        """Return the rows of each series, a name and its variant, for all seeds."""
        seeds = self.runner.context.seeds
        return self.runner.measure_runs(
            [self.measurement(variant, seed, {"series": name}) for seed in seeds for name, variant in series.items()]
        )

    def _rows(self, variant: str, seed: int, fractions: Sequence[float], scratch: str, model: AnytimeModel) -> list[Row]:
        s = self.runner.context
        rows = sample_rows(
            model, fractions, self.count, self.real, self.network,
            seed=seed, series=variant, folder=self.runner.scratch(scratch), reporter=s.reporter, pause=s.pause,
        )  # fmt: skip
        return [{**row, "length": model.length, "engine": model.engine.name} for row in rows]


def fid_label(rows: Sequence[Row]) -> str:
    """Return `FID`, or the name of the distance that replaces it at smoke scale."""
    name = distance_name(rows)
    return "FID" if name == "fid" else name


def fid_by_fraction(rows: Sequence[Row], series: str) -> dict[float, list[float]]:
    """Return the distances of a series, by fraction and seed."""
    return {fraction: values(rows, series, distance_name(rows), fraction=fraction) for fraction in PAPER_FRACTIONS}


def plot_fid(axes: Any, rows: Sequence[Row], series: str, style: str, across: str = "fraction") -> None:
    """Plot a series' mean over the seeds as a line and each seed as dots."""
    name = distance_name(rows)
    plot_curve(axes, rows, series, across, name, style)
    own = [row for row in select(rows, series=series) if across in row and name in row]
    axes.plot([row[across] for row in own], [row[name] for row in own], ".", color=axes.lines[-1].get_color())


def fid_figure(results: Results, styles: Mapping[str, str], across: str = "fraction") -> Any:
    """Return a figure of FID by code length, one curve for each series and its style."""
    figure = new_figure(5.0, 3.6)
    axes = figure.subplots()
    for series, style in styles.items():
        plot_fid(axes, results.rows, series, style, across)
    xlabel = "fraction of the codes" if across == "fraction" else across
    axes.set(xlabel=xlabel, ylabel=fid_label(results.rows), title=results.dataset, ylim=(0, None))
    axes.legend()
    return figure
