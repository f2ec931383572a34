"""The runner of an experiment: trains runs when a measurement needs them, and caches every measurement.

Work stops at safe points only (a checkpoint, a chunk of features, a cached measurement). The same call resumes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor

from anytime import __version__
from anytime.baselines.density import DensityRunConfig, load_density
from anytime.baselines.vae import VAERunConfig, load_vae
from anytime.core import storage
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, Pause, Paused
from anytime.core.progress import Reporter, SilentReporter
from anytime.core.results import Results, Row, Verdict, select
from anytime.data import Dataset
from anytime.data.dataset import Labels
from anytime.evaluation.evaluate import check_shape
from anytime.experiments.cache import Measurement, MeasurementCache, TrainingRecord
from anytime.experiments.eta import eta
from anytime.experiments.variants import PlannedRun, ensure_trained, plan
from anytime.metrics.features import FeatureNetwork
from anytime.model import load
from anytime.models.registry import WEIGHTS
from anytime.training.config import Scale
from anytime.training.run import training_subset
from anytime.training.run_dir import RunPaths, check_finished_run, config_identity, data_digest

PUBLISHED_EXAMPLES = {"mnist": 60_000, "cifar10": 50_000, "celeba": 162_770}
"""Number of training images of the paper's datasets."""
LOADERS: dict[type, Callable[[Path, torch.device], Any]] = {VAERunConfig: load_vae, DensityRunConfig: load_density}
Work = Callable[[], tuple[list[Row], TrainingRecord | None]]


@dataclass(frozen=True, kw_only=True)
class ExperimentContext:
    """What an experiment works with."""

    dataset: Dataset
    scale: Scale
    device: torch.device
    seeds: tuple[int, ...] = (0,)
    samples: int | None = None  # None: the experiment's own number
    only: tuple[str, ...] = ()  # measure only these variants, then pause; empty for all
    network: FeatureNetwork | None = None  # of FID, for experiments that measure it
    labels: Labels | None = None  # of the images, for experiments that classify samples
    runs: Path = Path("runs")
    local: bool = False  # the data is a local copy
    command: str = ""
    reporter: Reporter = field(default_factory=SilentReporter)
    pause: Pause = NEVER

    @property
    def smoke(self) -> bool:
        """Return whether this is a smoke run."""
        return self.scale == "smoke"

    @property
    def timing(self) -> dict[str, str]:
        """Return the facts that every time depends on."""
        here = environment(self.device)
        return {"hardware": here["hardware"], "torch": here["torch"]}

    @property
    def seed(self) -> int:
        """Return the first seed, for experiments that need only one."""
        return self.seeds[0]


@dataclass(frozen=True)
class RunMeasurement:
    """A measurement of one run."""

    variant: str
    seed: int
    measure: Callable[[Any], list[Row]]  # takes the AnytimeModel, VAE or DensityModel
    facts: Mapping[str, Any]  # what the rows depend on, besides the run and the data
    _: KW_ONLY
    part: str = ""  # distinguishes several measurements of a run
    shared_with: Sequence[str] = ()  # experiments that make the same measurement; with equal facts, theirs is used
    where: Mapping[str, Any] = field(default_factory=dict)  # keep only rows with these values
    labels: Mapping[str, Any] = field(default_factory=dict)  # set in every row

    @property
    def name(self) -> str:
        """Return the name in the cache, such as `ordered 0, errors`."""
        return f"{self.variant} {self.seed}" + (f", {self.part}" if self.part else "")

    def select(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that match `where`, with `labels`."""
        return [{**row, **self.labels} for row in select(rows, **self.where)]


class Runner:
    """Measures runs and data for one experiment, each at most once."""

    def __init__(self, experiment: str, context: ExperimentContext) -> None:
        self.experiment, self.context = experiment, context
        self.cache = MeasurementCache(self._cache_path(experiment))
        self.notes: list[str] = []  # for the schedule
        self.plans: dict[str, PlannedRun] = {}  # of the measured runs
        self.trainings: dict[str, TrainingRecord] = {}
        self.environments: list[dict[str, Any]] = []  # of the measurements

    def plan(self, variant: str, seed: int) -> PlannedRun:
        """Plan the run of a variant, trained or not."""
        s = self.context
        return plan(variant, s.dataset, s.scale, seed, s.device.type, s.runs, s.local)

    def measure_runs(self, measurements: Sequence[RunMeasurement]) -> list[Row]:
        """Return the rows of all measurements, in order. With `only`, raise `Paused` once those variants are measured."""
        if only := self.context.only:
            measurements = [each for each in measurements if each.variant in only]
        self.announce(measurements)
        if only:
            for each in measurements:
                self._measure_run(each)
            raise Paused(f"{', '.join(only)} measured, other variants left")
        return [row for each in measurements for row in each.select(self._measure_run(each))]

    def measure_series(
        self, series: Mapping[str, str], measure: Callable[..., list[Row]], facts: Mapping[str, Any]
    ) -> list[Row]:
        """Measure each series, a name and its variant, for every seed; `measure` takes the model and `seed`."""
        measurements = [
            RunMeasurement(variant, seed, partial(measure, seed=seed), facts, labels={"series": name, "seed": seed})
            for seed in self.context.seeds
            for name, variant in series.items()
        ]
        return self.measure_runs(measurements)

    def announce(self, measurements: Sequence[RunMeasurement]) -> None:
        """Say what must be trained; refuse data that is too small, and finished runs with another config or other data."""
        s, missing = self.context, list[PlannedRun]()
        for each in measurements:
            run = self.plan(each.variant, each.seed)
            needed, available = run.config.examples or 0, len(s.dataset.train)
            if needed > available and not s.smoke:
                text = f"{self.experiment} trains on {needed:,} images, more than the {available:,} of {s.dataset.name}"
                raise UserError(f"{text}; choose a larger `dataset`")
            if self._find(each.name, self._run_facts(each, run), each.shared_with) is None:
                missing.append(run)
                if RunPaths(run.run_dir).finished:
                    check_finished_run(run.run_dir, run.config, training_subset(s.dataset, run.config))
        s.reporter.say(eta(missing, s.dataset))

    def _run_facts(self, each: RunMeasurement, run: PlannedRun) -> dict[str, Any]:
        return {**each.facts, "run": config_identity(run.config), "data": data_digest(self.context.dataset)}

    def _measure_run(self, each: RunMeasurement) -> list[Row]:
        s, run, key = self.context, self.plan(each.variant, each.seed), f"{each.variant} {each.seed}"

        def work() -> tuple[list[Row], TrainingRecord]:
            training = ensure_trained(run, s.dataset, s.device, s.reporter, s.pause)
            _, _, digest = storage.read_tensors(run.run_dir / "model" / WEIGHTS)
            return [{**row, "model": digest} for row in each.measure(self._load(run))], training

        found = self._measure(each.name, self._run_facts(each, run), work, each.shared_with)
        self.plans[key] = run
        if found.training is not None:
            self.trainings[key] = found.training
        return found.rows

    def _load(self, run: PlannedRun) -> Any:
        if loader := LOADERS.get(type(run.config)):
            return loader(run.run_dir, self.context.device)
        model = load(run.run_dir, self.context.device)
        check_shape(model, self.context.dataset)
        return model

    def measure_data(self, name: str, facts: Mapping[str, Any], measure: Callable[[], list[Row]]) -> list[Row]:
        """Return the rows of a measurement without a run."""
        return self._measure(name, facts, lambda: (measure(), None)).rows

    def _measure(self, name: str, facts: Mapping[str, Any], work: Work, shared_with: Sequence[str] = ()) -> Measurement:
        s = self.context
        if (found := self._find(name, facts, shared_with)) is not None:
            path, measurement = found
            own = path == self.cache.path
            s.reporter.say(f"{self.experiment}, {name}: cached in {path}" + ("; remove it to measure again" if own else ""))
            measurement = measurement if own else self.cache.store(name, measurement)
        else:
            rows, training = work()
            facts = {**facts, "anytime": __version__}
            measurement = self.cache.store(name, Measurement(facts, rows, environment(s.device), training))
            shutil.rmtree(self.scratch(name), ignore_errors=True)
            s.pause.check(f"{name} is measured")
        self.environments.append(measurement.environment)
        return measurement

    def _find(self, name: str, facts: Mapping[str, Any], shared_with: Sequence[str]) -> tuple[Path, Measurement] | None:
        """Return a cached measurement and its file: this experiment's, or one of `shared_with`."""
        for experiment in dict.fromkeys((self.experiment, *shared_with)):
            cache = MeasurementCache(self._cache_path(experiment))
            if (measurement := cache.find(name, {**facts, "anytime": __version__})) is not None:
                return cache.path, measurement
        return None

    def _cache_path(self, experiment: str) -> Path:
        return self.context.runs / "measured" / f"{experiment}-{self.context.dataset.name}-{self.context.scale}.json"

    def scratch(self, name: str) -> Path:
        """Return a directory for what is needed until a measurement is cached, such as half a gigabyte of features."""
        return self.cache.path.with_name(f"{self.cache.path.stem}-{name.replace(' ', '-')}")

    def results(self, rows: list[Row], verdicts: list[Verdict]) -> Results:
        """Return the results. Verdicts are undecided if the data is synthetic or the scale is smoke."""
        s = self.context
        if s.smoke or s.dataset.synthetic:
            verdicts = [replace(verdict, holds=None) for verdict in verdicts]
        part = "test" if s.dataset.test is not None else "validation"
        facts = {
            **merge_environments(self.environments or [environment(s.device)]),
            "scale": s.scale,
            "data": s.dataset.source,
            "held_out": f"{len(s.dataset.held_out):,} {part} {'crops' if s.dataset.is_audio else 'images'}",
            "training": {name: asdict(training) for name, training in self.trainings.items()},
        }
        return Results(self.experiment, s.dataset.name, s.command, facts, self._schedule(), rows, verdicts)

    def _schedule(self) -> str:
        """Return one line: epochs and examples beside the paper's, seeds, and the notes."""
        s, by_epochs = self.context, dict[str, dict[str, None]]()  # the variants are the keys, in order
        for run in self.plans.values():
            by_epochs.setdefault(f"{run.epochs} epochs ({_paper_epochs(run)})", {})[run.variant.name] = None
        parts = [f"{', '.join(variants)}: {epochs}" for epochs, variants in by_epochs.items()]
        if self.trainings:
            examples = max(training.examples for training in self.trainings.values())
            published = PUBLISHED_EXAMPLES.get(s.dataset.name, 0)
            fewer = f" of {published:,} published" if examples < published else ""
            seeds = ("seeds " if len(s.seeds) > 1 else "seed ") + ", ".join(map(str, s.seeds))
            parts += [f"{examples:,} training {'recordings' if s.dataset.is_audio else 'images'}{fewer}", seeds]
        return "; ".join([f"scale {s.scale}", *parts, *self.notes])


def _paper_epochs(run: PlannedRun) -> str:
    """Compare the epochs of a run with the paper's, or with those of our own recipe."""
    if isinstance(run.config, DensityRunConfig):
        return "the paper states none"
    whose = "our recipe's" if run.config.recipe == "best" else "the paper's"
    return f"as {whose}" if run.epochs == run.full_epochs else f"{whose}: {run.full_epochs}"


def merge_environments(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the environments of several measurements; where they differ, name all values.

    >>> merge_environments([{"torch": "2.11", "ranks": 1}, {"torch": "2.13", "ranks": 1}])
    {'torch': '2.11, 2.13', 'ranks': 1}
    """
    found = {key: list(dict.fromkeys(each[key] for each in environments)) for key in environments[0]}
    return {key: values[0] if len(values) == 1 else ", ".join(map(str, values)) for key, values in found.items()}


def digest(x: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."]) -> str:
    """Identify images or audio, for the facts that a measurement depends on."""
    return storage.digest({"x": x})
