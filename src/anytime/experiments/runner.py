"""The runner of an experiment: trains runs when a measurement needs them, and caches every measurement.

Work stops at safe points only (a checkpoint, a chunk of features, a cached measurement). The same call resumes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor

from anytime import __version__
from anytime.baselines.density import DensityRunConfig, load_density
from anytime.baselines.vae import VAERunConfig, load_vae
from anytime.core import storage
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, PartMeasured, Pause
from anytime.core.progress import Reporter, SilentReporter
from anytime.core.results import MEASURED, Results, Row, Verdict, select
from anytime.data import Dataset
from anytime.data.dataset import Labels
from anytime.evaluation.evaluate import check_shape
from anytime.experiments.cache import Measurement, MeasurementCache, TrainingRecord
from anytime.experiments.eta import eta
from anytime.experiments.variants import PlannedRun, ensure_trained, plan
from anytime.metrics.features import FeatureNetwork
from anytime.model import AnytimeModel, load
from anytime.models.registry import WEIGHTS
from anytime.training.config import Scale
from anytime.training.run import training_subset
from anytime.training.run_dir import RunPaths, check_finished_run, config_identity, data_digest

PUBLISHED_EXAMPLES = {"mnist": 60_000, "cifar10": 50_000, "celeba": 162_770}
"""Number of training images of the paper's datasets."""
LOADERS: dict[type, Callable[[Path, torch.device], Any]] = {VAERunConfig: load_vae, DensityRunConfig: load_density}
Checkpoint = Literal["best", "last"]
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
    cached: bool = False  # decide from cached measurements; refuse to train or measure
    network: FeatureNetwork | None = None  # of FID, for experiments that measure it
    labels: Labels | None = None  # of the images, for experiments that classify samples
    runs: Path = Path("runs")
    kept: Path | None = None  # a folder of measurements made elsewhere, which is read and not written
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
    equal_facts: Sequence[Mapping[str, Any]] = ()  # changes of `facts` under which a cached measurement is used as well
    checkpoint: Checkpoint = "best"  # of the prior: the smallest validation loss, or the last epoch
    part: str = ""  # distinguishes several measurements of a run
    shared_with: Sequence[str] = ()  # experiments that make the same measurement; with equal facts, theirs is used
    where: Mapping[str, Any] = field(default_factory=dict)  # keep only rows with these values
    labels: Mapping[str, Any] = field(default_factory=dict)  # set in every row

    @property
    def name(self) -> str:
        """Return the name in the cache, such as `ordered 0, errors`."""
        last = ", last" if self.checkpoint == "last" else ""
        return f"{self.variant} {self.seed}{last}" + (f", {self.part}" if self.part else "")

    def select(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that match `where`, with `labels`."""
        return [{**row, **self.labels} for row in select(rows, **self.where)]


class Runner:
    """Measures runs and data for one experiment, each at most once."""

    def __init__(self, experiment: str, context: ExperimentContext) -> None:
        self.experiment, self.context = experiment, context
        self.cache = MeasurementCache(self._cache_path(experiment, self._folder))
        self.notes: list[str] = []  # for the schedule
        self.plans: dict[str, PlannedRun] = {}  # of the measured runs
        self.trainings: dict[str, TrainingRecord] = {}
        self.environments: list[dict[str, Any]] = []  # of the measurements
        self.retrained: set[Path] = set()  # runs that must be trained here, although some of their measurements are cached

    def plan(self, variant: str, seed: int) -> PlannedRun:
        """Plan the run of a variant, trained or not."""
        s = self.context
        return plan(variant, s.dataset, s.scale, seed, s.device.type, s.runs, s.local)

    def measure_runs(self, measurements: Sequence[RunMeasurement]) -> list[Row]:
        """Return the rows of all measurements, in order. With `only`, raise `PartMeasured` once those variants are measured."""
        if only := self.context.only:
            measurements = [each for each in measurements if each.variant in only]
        self.announce(measurements)
        if only:
            for each in measurements:
                self._measure_run(each)
            raise PartMeasured(f"{', '.join(only)} measured, other variants left")
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
        self.retrained = self._runs_to_train(measurements)
        for each in measurements:
            run = self.plan(each.variant, each.seed)
            needed, available = run.config.examples or 0, len(s.dataset.train)
            if needed > available and not s.smoke:
                text = f"{self.experiment} trains on {needed:,} images, more than the {available:,} of {s.dataset.name}"
                raise UserError(f"{text}; choose a larger `dataset`")
            if self._find_of_run(each, run) is None:
                missing.append(run)
                if RunPaths(run.run_dir).finished:
                    check_finished_run(run.run_dir, run.config, training_subset(s.dataset, run.config))
        if s.cached and missing:
            raise self._not_cached(", ".join(run.run_dir.name for run in missing))
        s.reporter.say(eta(missing, s.dataset))

    def _run_facts(self, each: RunMeasurement, run: PlannedRun) -> list[dict[str, Any]]:
        """Return what a measurement depends on, then the facts that count as equal."""
        facts = {**each.facts, "run": config_identity(run.config), "data": data_digest(self.context.dataset)}
        return [facts, *({**facts, **changes} for changes in each.equal_facts)]

    def _measure_run(self, each: RunMeasurement) -> list[Row]:
        s, run, key = self.context, self.plan(each.variant, each.seed), f"{each.variant} {each.seed}"

        def work() -> tuple[list[Row], TrainingRecord]:
            training = ensure_trained(run, s.dataset, s.device, s.reporter, s.pause)
            model, digest = self._load(run), storage.read_tensors(run.run_dir / "model" / WEIGHTS)[2]
            if each.checkpoint == "last":
                digest = load_last_prior(model, run.run_dir)
            return [{**row, "model": digest} for row in each.measure(model)], training

        found = self._measure(each.name, self._run_facts(each, run), work, each.shared_with, self._is_of(each, run))
        self.plans[key] = run
        if found.training is not None:
            self.trainings[key] = found.training
        return found.rows

    def _runs_to_train(self, measurements: Sequence[RunMeasurement]) -> set[Path]:
        """Return the runs that are not finished here and lack a measurement."""
        every = [(each, self.plan(each.variant, each.seed)) for each in measurements]
        here = [(each, run) for each, run in every if not RunPaths(run.run_dir).finished]
        return {
            run.run_dir for each, run in here if self._find(each.name, self._run_facts(each, run), each.shared_with) is None
        }

    def _find_of_run(self, each: RunMeasurement, run: PlannedRun) -> tuple[Path, Measurement] | None:
        return self._find(each.name, self._run_facts(each, run), each.shared_with, self._is_of(each, run))

    def _is_of(self, each: RunMeasurement, run: PlannedRun) -> Callable[[Measurement], bool]:
        """Return whether a cached measurement is of the run that is here, or will be: all of a run are of one training.

        Trained again on another machine, a run has other weights. Without a run here, cached measurements are taken as they
        are.
        """
        if self.context.cached:
            return lambda measurement: True
        if run.run_dir in self.retrained and not RunPaths(run.run_dir).finished:
            return lambda measurement: False
        digest = weights_digest(run.run_dir, each.checkpoint)
        return lambda measurement: digest is None or {row.get("model", digest) for row in measurement.rows} <= {digest}

    def _load(self, run: PlannedRun) -> Any:
        if loader := LOADERS.get(type(run.config)):
            return loader(run.run_dir, self.context.device)
        model = load(run.run_dir, self.context.device)
        check_shape(model, self.context.dataset)
        return model

    def measure_data(
        self,
        name: str,
        facts: Mapping[str, Any],
        measure: Callable[[], list[Row]],
        equal_facts: Sequence[Mapping[str, Any]] = (),
    ) -> list[Row]:
        """Return the rows of a measurement without a run; `equal_facts` as in `RunMeasurement`."""
        every = [facts, *({**facts, **changes} for changes in equal_facts)]
        return self._measure(name, every, lambda: (measure(), None)).rows

    def _measure(
        self,
        name: str,
        facts: Sequence[Mapping[str, Any]],
        work: Work,
        shared_with: Sequence[str] = (),
        fits: Callable[[Measurement], bool] = lambda measurement: True,
    ) -> Measurement:
        s = self.context
        if (found := self._find(name, facts, shared_with, fits)) is not None:
            path, measurement = found
            own = path == self.cache.path
            made = _other_commit(measurement.environment, environment(s.device))
            again = "; remove it to measure again" if own else ""
            s.reporter.say(f"{self.experiment}, {name}: cached in {path}{made}{again}")
            measurement = measurement if own else self.cache.store(name, measurement)
        else:
            self._say_why(name, facts[0])
            if (stale := self._find(name, facts, shared_with)) is not None:
                s.reporter.say(f"{self.experiment}, {name}: {stale[0]} has it of another training; it is measured again")
            if s.cached:
                raise self._not_cached(name)
            rows, training = work()
            stored = Measurement({**facts[0], "anytime": __version__}, rows, environment(s.device), training)
            measurement = self.cache.store(name, stored)
            shutil.rmtree(self.scratch(name), ignore_errors=True)
            s.pause.check(f"{name} is measured")
        self.environments.append(measurement.environment)
        return measurement

    def _find(
        self,
        name: str,
        facts: Sequence[Mapping[str, Any]],
        shared_with: Sequence[str],
        fits: Callable[[Measurement], bool] = lambda measurement: True,
    ) -> tuple[Path, Measurement] | None:
        """Return a cached measurement and its file: this experiment's or one of `shared_with`, made here or elsewhere."""
        experiments = dict.fromkeys((self.experiment, *shared_with))
        folders = [self._folder] + ([self.context.kept] if self.context.kept else [])
        caches = [MeasurementCache(self._cache_path(each, folder)) for folder in folders for each in experiments]
        for each, cache in product(facts, caches):
            if (measurement := cache.find(name, {**each, "anytime": __version__})) is not None and fits(measurement):
                return cache.path, measurement
        return None

    def _say_why(self, name: str, facts: Mapping[str, Any]) -> None:
        """Say which cached measurements of this name are not used, and why."""
        for folder in (self._folder, self.context.kept):
            cache = None if folder is None else MeasurementCache(self._cache_path(self.experiment, folder))
            if cache is not None and (keys := cache.changed(name, {**facts, "anytime": __version__})):
                text = f"{self.experiment}, {name}: {cache.path} has it with another {' and another '.join(keys)}"
                self.context.reporter.say(f"{text}; it is measured again")

    def _not_cached(self, names: str) -> UserError:
        places = " or ".join(str(folder) for folder in (self._folder, self.context.kept) if folder is not None)
        text = f"{self.experiment} has no cached measurement of {names} in {places} that fits this code and these data"
        return UserError(f"{text}; measure it, or leave `cached` out")

    @property
    def _folder(self) -> Path:
        return self.context.runs / MEASURED

    def _cache_path(self, experiment: str, folder: Path) -> Path:
        return folder / f"{experiment}-{self.context.dataset.name}-{self.context.scale}.json"

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


def weights_digest(run_dir: Path, checkpoint: Checkpoint) -> str | None:
    """Return the digest of a finished run's weights, as rows name it; None if the run is not finished here."""
    path = RunPaths(run_dir).last_prior if checkpoint == "last" else run_dir / "model" / WEIGHTS
    return storage.read_tensors(path)[2] if RunPaths(run_dir).finished and path.is_file() else None


def load_last_prior(model: AnytimeModel, run_dir: Path) -> str:
    """Give a run's model the prior of its last epoch; return the digest of those weights."""
    path = RunPaths(run_dir).last_prior
    if not path.is_file():
        raise UserError(f"{path} is missing: {run_dir} is of an earlier version; remove that run to train it again")
    weights, _, digest = storage.read_tensors(path)
    model.prior.load_state_dict(weights)
    return digest


def _other_commit(measured: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Say at which commit a cached measurement was made, if that is not the commit of this code.

    >>> _other_commit({"commit": "1234567"}, {"commit": "89abcde"}), _other_commit({"commit": "a"}, {"commit": "a"})
    (', measured at commit 1234567 (this code: 89abcde)', '')
    """
    theirs, ours = (str(each.get("commit") or "unknown") for each in (measured, here))
    return "" if theirs == ours else f", measured at commit {theirs} (this code: {ours})"


def _paper_epochs(run: PlannedRun) -> str:
    """Compare the epochs of a run with the paper's, or with those of our own recipe."""
    if isinstance(run.config, DensityRunConfig):
        return "the paper states none"
    if run.variant.examples:
        return "as many steps as with all images"
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
