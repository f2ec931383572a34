"""Where an experiment works: runs are trained when they are asked for, numbers kept as soon as they are there.

Work stops at safe points only (a checkpoint, a chunk of features, a piece in the notebook), and the same call goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor

from anytime import __version__
from anytime.baselines.density import DensityModel, load_density
from anytime.baselines.density_training import DensityRunConfig
from anytime.baselines.vae import VAE, load_vae
from anytime.core import storage
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, Pause
from anytime.core.progress import Reporter, SilentReporter
from anytime.core.results import Results, Row, Verdict
from anytime.data import Dataset
from anytime.evaluation.evaluate import check_shape
from anytime.experiments.cache import Measurement, MeasurementCache, Update
from anytime.experiments.eta import eta
from anytime.experiments.runs import PlannedRun, ensure_trained, plan
from anytime.metrics.features import FeatureNetwork
from anytime.model import AnytimeModel, load
from anytime.models.registry import WEIGHTS
from anytime.training.config import Scale
from anytime.training.run_dir import config_identity, data_digest, upgrade_config

PUBLISHED_EXAMPLES = {"mnist": 60_000, "cifar10": 50_000, "celeba": 162_770}
"""Training pictures of the paper's sets."""


@dataclass(frozen=True, kw_only=True)
class ExperimentContext:
    """What an experiment is given."""

    dataset: Dataset
    scale: Scale
    device: torch.device
    seeds: tuple[int, ...] = (0,)
    samples: int | None = None
    """How many samples are drawn; by default the experiment's own count."""
    network: FeatureNetwork | None = None
    """What FID is measured with, for those that do."""
    runs: Path = Path("runs")
    local: bool = False
    """Whether the data was given with --data."""
    command: str = ""
    reporter: Reporter = field(default_factory=SilentReporter)
    pause: Pause = NEVER

    @property
    def smoke(self) -> bool:
        return self.scale == "smoke"

    @property
    def seed(self) -> int:
        """The first, for experiments that need only one."""
        return self.seeds[0]


class Runner:
    def __init__(self, experiment: str, context: ExperimentContext) -> None:
        self.experiment, self.context = experiment, context
        self.cache = MeasurementCache(self._cache_path(experiment))
        self.plans: dict[str, PlannedRun] = {}  # of the runs that were asked for
        self.trainings: dict[str, dict[str, Any]] = {}
        self.environments: list[dict[str, Any]] = []  # of the measurements

    def plan(self, variant: str, seed: int) -> PlannedRun:
        """The run of that kind, there or not."""
        s = self.context
        return plan(variant, s.dataset, s.scale, seed, s.device.type, s.runs, s.local)

    def announce(
        self,
        runs: Sequence[tuple[str, int]],
        parts: Sequence[str] = ("",),
        shared_with: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what is still to be trained, of kinds and seeds; data that is too small for one of them is refused here.

        `parts`, `alike` and `facts` are those of `of_run`: a run of which all of it is known is not trained.
        """
        s, missing = self.context, list[PlannedRun]()
        for variant, seed in runs:
            run = self.plan(variant, seed)
            requested, available = run.config.examples or 0, len(s.dataset.train)
            if requested > available and not s.smoke:
                text = f"{self.experiment} trains on {requested:,} pictures, more than the {available:,} of {s.dataset.name}"
                raise UserError(f"{text}; choose a larger set with --dataset")
            if not all(self._is_cached(run, measurement_name(variant, seed, part), shared_with, facts or {}) for part in parts):
                missing.append(run)
        s.reporter.say(eta(missing, s.dataset))

    def _is_cached(self, run: PlannedRun, name: str, shared_with: Sequence[str], facts: Mapping[str, Any]) -> bool:
        facts = {**facts, "run": config_identity(run.config), "data": data_digest(self.context.dataset)}
        return any(cache.holds(name, facts, _config_updater(run)) for cache in (self.cache, *self._other_caches(shared_with)))

    def measure_run(
        self,
        variant: str,
        seed: int,
        facts: Mapping[str, Any],
        measure: Callable[[AnytimeModel], list[Row]],
        *,
        part: str = "",
        shared_with: Sequence[str] = (),
    ) -> list[Row]:
        """What `measure` finds out about a run; the run is needed, and trained, only if that is not known yet.

        `part` tells several measurements of a run apart. `alike` names experiments whose measurements, facts being equal, serve
        as well.
        """

        def measured(run: PlannedRun) -> list[Row]:
            model = load(run.run_dir, self.context.device)
            check_shape(model, self.context.dataset)
            return [{**row, "model": model.hash} for row in measure(model)]

        return self._measure(variant, seed, facts, measured, part, shared_with)

    def measure_vae(self, variant: str, seed: int, facts: Mapping[str, Any], measure: Callable[[VAE], list[Row]]) -> list[Row]:
        """The same for a VAE."""
        return self._measure(
            variant, seed, facts, lambda run: _with_model_hash(run, measure(load_vae(run.run_dir, self.context.device)))
        )

    def measure_density(
        self, variant: str, seed: int, facts: Mapping[str, Any], measure: Callable[[DensityModel], list[Row]]
    ) -> list[Row]:
        """The same for a density."""
        return self._measure(
            variant, seed, facts, lambda run: _with_model_hash(run, measure(load_density(run.run_dir, self.context.device)))
        )

    def _measure(
        self,
        variant: str,
        seed: int,
        facts: Mapping[str, Any],
        measured: Callable[[PlannedRun], list[Row]],
        part: str = "",
        shared_with: Sequence[str] = (),
    ) -> list[Row]:
        run, name, s = self.plan(variant, seed), f"{variant} {seed}", self.context
        facts = {**facts, "run": config_identity(run.config), "data": data_digest(s.dataset)}

        def work() -> tuple[list[Row], dict[str, Any]]:
            info = ensure_trained(run, s.dataset, s.device, s.reporter, s.pause)
            return measured(run), info

        self.plans[name] = run
        rows, self.trainings[name] = self._cached(
            measurement_name(variant, seed, part), facts, work, shared_with, _config_updater(run)
        )
        return rows

    def measure_data(
        self, name: str, facts: Mapping[str, Any], measure: Callable[[], list[Row]], update: Update = dict
    ) -> list[Row]:
        """What `measure` finds out without a run; `update` puts facts of an older version into today's words."""
        return self._cached(name, facts, lambda: (measure(), {}), update=update)[0]

    def _cached(
        self,
        name: str,
        facts: Mapping[str, Any],
        work: Callable[[], tuple[list[Row], dict[str, Any]]],
        shared_with: Sequence[str] = (),
        update: Update = dict,
    ) -> tuple[list[Row], dict[str, Any]]:
        s, facts = self.context, {**facts, "anytime": __version__}
        measurement = self.cache.find(name, facts, update)
        if measurement is not None:
            s.reporter.say(f"{self.experiment}, {name}: measured before; remove {self.cache.path} to measure again")
        elif (found := self._find_shared(name, facts, shared_with, update)) is not None:
            measurement = self.cache.store(name, found[1])
            s.reporter.say(f"{self.experiment}, {name}: measured before, as {found[0]} tells")
        else:
            rows, training = work()
            measurement = self.cache.store(name, Measurement(facts, rows, environment(s.device), training))
            shutil.rmtree(self.scratch(name), ignore_errors=True)
            s.pause.check(f"{name} is measured")
        self.environments.append(measurement.environment)
        return measurement.rows, measurement.training

    def _find_shared(
        self, name: str, facts: Mapping[str, Any], shared_with: Sequence[str], update: Update
    ) -> tuple[Path, Measurement] | None:
        """The same measurement in another experiment's notebook."""
        for cache in self._other_caches(shared_with):
            if (measurement := cache.find(name, facts, update)) is not None:
                return cache.path, measurement
        return None

    def _other_caches(self, experiments: Sequence[str]) -> list[MeasurementCache]:
        return [MeasurementCache(self._cache_path(name)) for name in experiments if name != self.experiment]

    def _cache_path(self, experiment: str) -> Path:
        return self.context.runs / "measured" / f"{experiment}-{self.context.dataset.name}-{self.context.scale}.json"

    def scratch(self, name: str) -> Path:
        """A folder for what is needed until a piece is kept, such as half a gigabyte of features."""
        return self.cache.path.with_name(f"{self.cache.path.stem}-{name.replace(' ', '-')}")

    def results(self, rows: list[Row], verdicts: list[Verdict], notes: Sequence[str] = ()) -> Results:
        """The rows with their circumstances. Verdicts are open where the data is synthetic or all is of smoke scale."""
        s = self.context
        if s.smoke or s.dataset.synthetic:
            verdicts = [replace(verdict, holds=None) for verdict in verdicts]
        part = "test" if s.dataset.test is not None else "validation"
        facts = {
            **merge_environments(self.environments or [environment(s.device)]),
            "scale": s.scale,
            "data": s.dataset.source,
            "held_out": f"{len(s.dataset.held_out):,} {part} {'crops' if s.dataset.is_audio else 'pictures'}",
            "training": self.trainings,
        }
        return Results(self.experiment, s.dataset.name, s.command, facts, self._schedule(notes), rows, verdicts)

    def _schedule(self, notes: Sequence[str]) -> str:
        """One line: epochs and pictures beside the paper's, seeds, and what else is to be said."""
        s, by_epochs = self.context, dict[str, list[str]]()
        for run in self.plans.values():
            paper = _paper_epochs(run)
            kinds = by_epochs.setdefault(f"{run.epochs} epochs ({paper})", [])
            kinds += [] if run.variant in kinds else [run.variant]
        parts = [f"{', '.join(kinds)}: {epochs}" for epochs, kinds in by_epochs.items()]
        if self.trainings:
            examples = max(info["examples"] for info in self.trainings.values())
            published = PUBLISHED_EXAMPLES.get(s.dataset.name, 0)
            fewer = f" of {published:,} published" if examples < published else ""
            seeds = ("seeds " if len(s.seeds) > 1 else "seed ") + ", ".join(map(str, s.seeds))
            parts += [f"{examples:,} training {'recordings' if s.dataset.is_audio else 'pictures'}{fewer}", seeds]
        return "; ".join([f"scale {s.scale}", *parts, *notes])


def _paper_epochs(run: PlannedRun) -> str:
    """The epochs of the paper, or of our own recipe, beside a run's."""
    if isinstance(run.config, DensityRunConfig):
        return f"the paper states none; its prior's: {run.full_epochs}"
    whose = "our recipe's" if run.config.recipe == "best" else "the paper's"
    return f"as {whose}" if run.epochs == run.full_epochs else f"{whose}: {run.full_epochs}"


def measurement_name(variant: str, seed: int, part: str = "") -> str:
    """
    >>> measurement_name("ordered", 0), measurement_name("ordered", 0, "errors")
    ('ordered 0', 'ordered 0, errors')
    """
    return f"{variant} {seed}, {part}" if part else f"{variant} {seed}"


def _with_model_hash(run: PlannedRun, rows: list[Row]) -> list[Row]:
    """Rows with the digest of the model's weights."""
    _, _, found = storage.read_tensors(run.run_dir / "model" / WEIGHTS)
    return [{**row, "model": found} for row in rows]


def _config_updater(run: PlannedRun) -> Update:
    """Measurements of a run stay valid when its config learns of new keys, as long as they have their defaults."""
    return lambda facts: {**facts, "run": upgrade_config(facts["run"], run.config)} if "run" in facts else facts


def merge_environments(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One environment of several measurements: where they differ, all values are named.

    >>> merge_environments([{"torch": "2.11", "ranks": 1}, {"torch": "2.13", "ranks": 1}])
    {'torch': '2.11, 2.13', 'ranks': 1}
    """
    found = {key: list(dict.fromkeys(each[key] for each in environments)) for key in environments[0]}
    return {key: values[0] if len(values) == 1 else ", ".join(map(str, values)) for key, values in found.items()}


def digest(x: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."]) -> str:
    """Names pictures or sounds, for the facts that a piece depends on."""
    return storage.digest({"x": x})
