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
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, Pause
from anytime.core.results import Results, Row, Verdict
from anytime.data import Dataset
from anytime.evaluation.evaluate import check_shape
from anytime.experiments.cache import Notebook, Piece, Update
from anytime.experiments.eta import forecast
from anytime.experiments.runs import Plan, plan, trained
from anytime.metrics.features import FeatureNetwork
from anytime.model import AnytimeModel, load
from anytime.models.registry import WEIGHTS
from anytime.recipes.base import Scale
from anytime.training.log import Reporter, Silent
from anytime.training.run_dir import data_digest, environment, now_called, what

PUBLISHED = {"mnist": 60_000, "cifar10": 50_000, "celeba": 162_770}
"""Training pictures of the paper's sets."""


@dataclass(frozen=True, kw_only=True)
class Setting:
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
    reporter: Reporter = field(default_factory=Silent)
    pause: Pause = NEVER

    @property
    def smoke(self) -> bool:
        return self.scale == "smoke"

    @property
    def seed(self) -> int:
        """The first, for experiments that need only one."""
        return self.seeds[0]


class Workbench:
    def __init__(self, experiment: str, setting: Setting) -> None:
        self.experiment, self.setting = experiment, setting
        self.notebook = Notebook(self._place(experiment))
        self.plans: dict[str, Plan] = {}  # of the runs that were asked for
        self.trainings: dict[str, dict[str, Any]] = {}
        self.environments: list[dict[str, Any]] = []  # of the measurements

    def plan(self, kind: str, seed: int) -> Plan:
        """The run of that kind, there or not."""
        s = self.setting
        return plan(kind, s.dataset, s.scale, seed, s.device.type, s.runs, s.local)

    def announce(
        self,
        runs: Sequence[tuple[str, int]],
        parts: Sequence[str] = ("",),
        alike: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what is still to be trained, of kinds and seeds; data that is too small for one of them is refused here.

        `parts`, `alike` and `facts` are those of `of_run`: a run of which all of it is known is not trained.
        """
        s, missing = self.setting, list[Plan]()
        for kind, seed in runs:
            run = self.plan(kind, seed)
            wanted, there = run.config.examples or 0, len(s.dataset.train)
            if wanted > there and not s.smoke:
                text = f"{self.experiment} trains on {wanted:,} pictures, more than the {there:,} of {s.dataset.name}"
                raise UserError(f"{text}; choose a larger set with --dataset")
            if not all(self._measured(run, piece_name(kind, seed, part), alike, facts or {}) for part in parts):
                missing.append(run)
        s.reporter.say(forecast(missing, s.dataset))

    def _measured(self, run: Plan, name: str, alike: Sequence[str], facts: Mapping[str, Any]) -> bool:
        facts = {**facts, "run": what(run.config), "data": data_digest(self.setting.dataset)}
        return any(notebook.holds(name, facts, _updating(run)) for notebook in (self.notebook, *self._others(alike)))

    def of_run(
        self,
        kind: str,
        seed: int,
        facts: Mapping[str, Any],
        measure: Callable[[AnytimeModel], list[Row]],
        *,
        part: str = "",
        alike: Sequence[str] = (),
    ) -> list[Row]:
        """What `measure` finds out about a run; the run is needed, and trained, only if that is not known yet.

        `part` tells several measurements of a run apart. `alike` names experiments whose measurements, facts being equal, serve
        as well.
        """

        def measured(run: Plan) -> list[Row]:
            model = load(run.folder, self.setting.device)
            check_shape(model, self.setting.dataset)
            return [{**row, "model": model.hash} for row in measure(model)]

        return self._of(kind, seed, facts, measured, part, alike)

    def of_vae(self, kind: str, seed: int, facts: Mapping[str, Any], measure: Callable[[VAE], list[Row]]) -> list[Row]:
        """The same for a VAE."""
        return self._of(kind, seed, facts, lambda run: _named(run, measure(load_vae(run.folder, self.setting.device))))

    def of_density(
        self, kind: str, seed: int, facts: Mapping[str, Any], measure: Callable[[DensityModel], list[Row]]
    ) -> list[Row]:
        """The same for a density."""
        return self._of(kind, seed, facts, lambda run: _named(run, measure(load_density(run.folder, self.setting.device))))

    def _of(
        self,
        kind: str,
        seed: int,
        facts: Mapping[str, Any],
        measured: Callable[[Plan], list[Row]],
        part: str = "",
        alike: Sequence[str] = (),
    ) -> list[Row]:
        run, name, s = self.plan(kind, seed), f"{kind} {seed}", self.setting
        facts = {**facts, "run": what(run.config), "data": data_digest(s.dataset)}

        def work() -> tuple[list[Row], dict[str, Any]]:
            told = trained(run, s.dataset, s.device, s.reporter, s.pause)
            return measured(run), told

        self.plans[name] = run
        rows, self.trainings[name] = self._piece(piece_name(kind, seed, part), facts, work, alike, _updating(run))
        return rows

    def of_data(
        self, name: str, facts: Mapping[str, Any], measure: Callable[[], list[Row]], update: Update = dict
    ) -> list[Row]:
        """What `measure` finds out without a run; `update` puts facts of an older version into today's words."""
        return self._piece(name, facts, lambda: (measure(), {}), update=update)[0]

    def _piece(
        self,
        name: str,
        facts: Mapping[str, Any],
        work: Callable[[], tuple[list[Row], dict[str, Any]]],
        alike: Sequence[str] = (),
        update: Update = dict,
    ) -> tuple[list[Row], dict[str, Any]]:
        s, facts = self.setting, {**facts, "anytime": __version__}
        piece = self.notebook.find(name, facts, update)
        if piece is not None:
            s.reporter.say(f"{self.experiment}, {name}: measured before; remove {self.notebook.path} to measure again")
        elif (found := self._elsewhere(name, facts, alike, update)) is not None:
            piece = self.notebook.keep(name, found[1])
            s.reporter.say(f"{self.experiment}, {name}: measured before, as {found[0]} tells")
        else:
            rows, training = work()
            piece = self.notebook.keep(name, Piece(facts, rows, environment(s.device), training))
            shutil.rmtree(self.scratch(name), ignore_errors=True)
            s.pause.check(f"{name} is measured")
        self.environments.append(piece.environment)
        return piece.rows, piece.training

    def _elsewhere(
        self, name: str, facts: Mapping[str, Any], alike: Sequence[str], update: Update
    ) -> tuple[Path, Piece] | None:
        """The same measurement in another experiment's notebook."""
        for notebook in self._others(alike):
            if (piece := notebook.find(name, facts, update)) is not None:
                return notebook.path, piece
        return None

    def _others(self, experiments: Sequence[str]) -> list[Notebook]:
        return [Notebook(self._place(name)) for name in experiments if name != self.experiment]

    def _place(self, experiment: str) -> Path:
        return self.setting.runs / "measured" / f"{experiment}-{self.setting.dataset.name}-{self.setting.scale}.json"

    def scratch(self, name: str) -> Path:
        """A folder for what is needed until a piece is kept, such as half a gigabyte of features."""
        return self.notebook.path.with_name(f"{self.notebook.path.stem}-{name.replace(' ', '-')}")

    def results(self, rows: list[Row], verdicts: list[Verdict], notes: Sequence[str] = ()) -> Results:
        """The rows with their circumstances. Verdicts are open where the data is synthetic or all is of smoke scale."""
        s = self.setting
        if s.smoke or s.dataset.synthetic:
            verdicts = [replace(verdict, holds=None) for verdict in verdicts]
        part = "test" if s.dataset.test is not None else "validation"
        facts = {
            **together(self.environments or [environment(s.device)]),
            "scale": s.scale,
            "data": s.dataset.source,
            "held_out": f"{len(s.dataset.held_out):,} {part} {'crops' if s.dataset.is_sound else 'pictures'}",
            "training": self.trainings,
        }
        return Results(self.experiment, s.dataset.name, s.command, facts, self._schedule(notes), rows, verdicts)

    def _schedule(self, notes: Sequence[str]) -> str:
        """One line: epochs and pictures beside the paper's, seeds, and what else is to be said."""
        s, by_epochs = self.setting, dict[str, list[str]]()
        for run in self.plans.values():
            paper = _papers(run)
            kinds = by_epochs.setdefault(f"{run.epochs} epochs ({paper})", [])
            kinds += [] if run.kind in kinds else [run.kind]
        parts = [f"{', '.join(kinds)}: {epochs}" for epochs, kinds in by_epochs.items()]
        if self.trainings:
            examples = max(told["examples"] for told in self.trainings.values())
            published = PUBLISHED.get(s.dataset.name, 0)
            fewer = f" of {published:,} published" if examples < published else ""
            seeds = ("seeds " if len(s.seeds) > 1 else "seed ") + ", ".join(map(str, s.seeds))
            parts += [f"{examples:,} training {'recordings' if s.dataset.is_sound else 'pictures'}{fewer}", seeds]
        return "; ".join([f"scale {s.scale}", *parts, *notes])


def _papers(run: Plan) -> str:
    """The epochs of the paper, or of our own recipe, beside a run's."""
    if isinstance(run.config, DensityRunConfig):
        return f"the paper states none; its prior's: {run.full_epochs}"
    whose = "our recipe's" if run.config.recipe == "best" else "the paper's"
    return f"as {whose}" if run.epochs == run.full_epochs else f"{whose}: {run.full_epochs}"


def piece_name(kind: str, seed: int, part: str = "") -> str:
    """
    >>> piece_name("ordered", 0), piece_name("ordered", 0, "errors")
    ('ordered 0', 'ordered 0, errors')
    """
    return f"{kind} {seed}, {part}" if part else f"{kind} {seed}"


def _named(run: Plan, rows: list[Row]) -> list[Row]:
    """Rows with the digest of the model's weights."""
    _, _, found = storage.read_tensors(run.folder / "model" / WEIGHTS)
    return [{**row, "model": found} for row in rows]


def _updating(run: Plan) -> Update:
    """Measurements of a run stay valid when its config learns of new keys, as long as they have their defaults."""
    return lambda facts: {**facts, "run": now_called(facts["run"], run.config)} if "run" in facts else facts


def together(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One environment of several measurements: where they differ, all values are named.

    >>> together([{"torch": "2.11", "ranks": 1}, {"torch": "2.13", "ranks": 1}])
    {'torch': '2.11, 2.13', 'ranks': 1}
    """
    found = {key: list(dict.fromkeys(each[key] for each in environments)) for key in environments[0]}
    return {key: values[0] if len(values) == 1 else ", ".join(map(str, values)) for key, values in found.items()}


def digest(x: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."]) -> str:
    """Names pictures or sounds, for the facts that a piece depends on."""
    return storage.digest({"x": x})
