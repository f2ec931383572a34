"""FID of runs by code length, measured once for all experiments that compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from anytime.core.results import Row, curve
from anytime.evaluation.image_summary import distance_name
from anytime.experiments.runner import ExperimentContext, Runner, digest
from anytime.metrics.feature_stats import FeatureStatistics
from anytime.metrics.quality import reference_statistics, sample_rows
from anytime.model import AnytimeModel

FID_FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
FULL = (1.0,)
SAMPLES, SMOKE_SAMPLES = 10_000, 100
"""Samples of an ablation, and of a smoke run."""
FID_EXPERIMENTS = ("fid", "objective", "priors", "truncation", "regularization", "tailored")
"""Experiments that measure the same of a run: what one of them has kept serves the others."""


def sample_count(context: ExperimentContext, default: int = SAMPLES) -> int:
    """As many as asked for, else the experiment's own count."""
    return context.samples or (SMOKE_SAMPLES if context.smoke else default)


class FIDEvaluator:
    """Measures runs against the published training set."""

    def __init__(self, runner: Runner, count: int) -> None:
        s = runner.context
        assert s.network is not None, "the command line finds it before any work"
        self.runner, self.count, self.network = runner, count, s.network
        network, train = s.network, s.dataset.published_train
        self.real = LazyStatistics(lambda: reference_statistics(train, network, reporter=s.reporter, pause=s.pause))
        self.shared = {"network": network.digest, "reference": digest(train)}
        self.reference_text = f"{len(train):,} {'synthetic ' if s.dataset.synthetic else ''}training pictures"

    def evaluate(self, variant: str, seed: int, fractions: Sequence[float] = FID_FRACTIONS) -> list[Row]:
        """One run's rows; samples have the seed of the training. The series is the kind."""
        facts = {**self.shared, "samples": self.count, "fractions": fractions}
        return self.runner.measure_run(
            variant, seed, facts, partial(self._rows, variant, seed, fractions), shared_with=FID_EXPERIMENTS
        )

    def _rows(self, variant: str, seed: int, fractions: Sequence[float], model: AnytimeModel) -> list[Row]:
        s = self.runner.context
        rows = sample_rows(
            model, fractions, self.count, self.real(), self.network,
            seed=seed, series=variant, folder=self.runner.scratch(f"{variant} {seed}"), reporter=s.reporter, pause=s.pause,
        )  # fmt: skip
        return [{**row, "length": model.length, "engine": model.engine.name} for row in rows]

    def note(self, paper: int | None = None) -> str:
        """How many samples against what, for the schedule."""
        fewer = f" (the paper's: {paper:,})" if paper is not None and self.count < paper else ""
        return f"{self.count:,} samples{fewer} against {self.reference_text}"


class LazyStatistics:
    """A value that is computed when it is first asked for: half a GPU minute that a finished experiment does without."""

    def __init__(self, make: Callable[[], FeatureStatistics]) -> None:
        self.make, self.value = make, list[FeatureStatistics]()

    def __call__(self) -> FeatureStatistics:
        if not self.value:
            self.value.append(self.make())
        return self.value[0]


def label(rows: Sequence[Row]) -> str:
    """FID, or the name of what stands for it at smoke scale."""
    name = distance_name(rows)
    return "FID" if name == "fid" else name


def plot(axes: Any, rows: Sequence[Row], series: str, style: str, across: str = "fraction") -> None:
    """A series' mean over the seeds as a line, each seed as dots."""
    name = distance_name(rows)
    points = curve(rows, series, across, name)
    axes.plot(list(points), list(points.values()), style, label=series)
    own = [row for row in rows if row["series"] == series and across in row and name in row]
    axes.plot([row[across] for row in own], [row[name] for row in own], ".", color=axes.lines[-1].get_color())
