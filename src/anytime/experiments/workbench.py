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

from anytime import __version__, storage
from anytime.data import Dataset
from anytime.evaluation.assessment import check_shape
from anytime.evaluation.features import FeatureNetwork
from anytime.experiments.notebook import Notebook, Piece
from anytime.experiments.results import Results, Row, Verdict
from anytime.experiments.trainings import Plan, plan, trained
from anytime.model import AnytimeModel, load
from anytime.training.folder import data_digest, environment, what
from anytime.training.log import Reporter, Silent
from anytime.training.pause import NEVER, Pause
from anytime.training.recipes import Scale

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
        self.folder = setting.runs / "measured" / f"{experiment}-{setting.dataset.name}-{setting.scale}"
        self.notebook = Notebook(self.folder.with_suffix(".json"))
        self.plans: dict[str, Plan] = {}  # of the runs that were asked for
        self.trainings: dict[str, dict[str, Any]] = {}
        self.environments: list[dict[str, Any]] = []  # of the measurements

    def plan(self, kind: str, seed: int) -> Plan:
        """The run of that kind, there or not."""
        s = self.setting
        return plan(kind, s.dataset, s.scale, seed, s.device.type, s.runs, s.local)

    def of_run(self, kind: str, seed: int, facts: Mapping[str, Any], measure: Callable[[AnytimeModel], list[Row]]) -> list[Row]:
        """What `measure` finds out about a run; the run is needed, and trained, only if that is not known yet."""
        run, name, s = self.plan(kind, seed), f"{kind} {seed}", self.setting
        facts = {**facts, "run": what(run.config), "data": data_digest(s.dataset)}

        def work() -> tuple[list[Row], dict[str, Any]]:
            told = trained(run, s.dataset, s.device, s.reporter, s.pause)
            model = load(run.folder, s.device)
            check_shape(model, s.dataset)
            return [{**row, "model": model.hash} for row in measure(model)], told

        self.plans[name] = run
        rows, self.trainings[name] = self._piece(name, facts, work)
        return rows

    def of_data(self, name: str, facts: Mapping[str, Any], measure: Callable[[], list[Row]]) -> list[Row]:
        """What `measure` finds out without a run."""
        return self._piece(name, facts, lambda: (measure(), {}))[0]

    def _piece(
        self, name: str, facts: Mapping[str, Any], work: Callable[[], tuple[list[Row], dict[str, Any]]]
    ) -> tuple[list[Row], dict[str, Any]]:
        s, facts = self.setting, {**facts, "anytime": __version__}
        piece = self.notebook.find(name, facts)
        if piece is not None:
            s.reporter.say(f"{self.experiment}, {name}: measured before; remove {self.notebook.path} to measure again")
        else:
            rows, training = work()
            piece = self.notebook.keep(name, Piece(facts, rows, environment(s.device), training))
            shutil.rmtree(self.scratch(name), ignore_errors=True)
            s.pause.check(f"{name} is measured")
        self.environments.append(piece.environment)
        return piece.rows, piece.training

    def scratch(self, name: str) -> Path:
        """A folder for what is needed until a piece is kept, such as half a gigabyte of features."""
        return self.folder.with_name(f"{self.folder.name}-{name.replace(' ', '-')}")

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
            whose = "the paper's" if run.config.recipe != "best" else "our recipe's"
            paper = f"as {whose}" if run.epochs == run.full_epochs else f"{whose}: {run.full_epochs}"
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
