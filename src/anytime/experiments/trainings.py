"""The runs that experiments compare: six kinds with names of their own, trained once for all experiments."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from anytime.autoencoders.truncation import Full
from anytime.data import Dataset
from anytime.training.folder import Paths, read_config, taken_over
from anytime.training.log import Reporter
from anytime.training.pause import Pause
from anytime.training.recipes import Recipe, RunConfig, Scale, computed_on, recipe, scaled, with_layout, with_truncation
from anytime.training.run import train, used

KINDS = {
    "ordered": ("--recipe", "paper"),
    "unordered": ("--recipe", "paper", "--truncation", "full"),
    "spatial": ("--recipe", "paper", "--layout", "spatial"),
    "original": ("--recipe", "original"),
    "best": ("--recipe", "best"),
    "best-unordered": ("--recipe", "best", "--truncation", "full"),
}
"""What `anytime train` is told for each."""
SHARED = {"unordered": "ordered", "best-unordered": "best"}
"""Whose first stage another kind takes over."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: what is trained, where, and the command that does the same by hand."""

    kind: str
    config: RunConfig
    folder: Path
    share: Path | None  # a run whose first stage is the same
    command: str

    @property
    def epochs(self) -> str:
        return _epochs(self.config)

    @property
    def full_epochs(self) -> str:
        """Those of the recipe before it was scaled down."""
        name, shape = self.config.model.name, self.config.model.autoencoder.shape
        return _epochs(recipe(name, self.config.recipe, shape))


def _epochs(config: RunConfig) -> str:
    tuned = "" if config.tune is None else f" + {config.tune.epochs}"
    return f"{config.pretrain.epochs} + {config.ordered.epochs}{tuned} + {config.prior.epochs}"


def plan(kind: str, dataset: Dataset, scale: Scale, seed: int, device: str, runs: Path, local: bool = False) -> Plan:
    """The run of a kind: `runs/cifar10-paper-short-ordered-0`. `local` says that the data was given with --data."""
    name = _name(kind, dataset.name, scale, seed)
    share = _name(SHARED[kind], dataset.name, scale, seed) if kind in SHARED else None
    words = ["anytime", "train", dataset.name, *KINDS[kind]]
    words += [] if scale == "full" else ["--scale", scale]
    words += ["--data", "DIR"] if local else []
    words += ["--seed", str(seed)] if seed else []
    words += ["--share", f"runs/{share}"] if share else []
    words += ["--out", f"runs/{name}"]
    config = computed_on(replace(_config(kind, dataset, scale), seed=seed), device)
    return Plan(kind, config, runs / name, runs / share if share else None, shlex.join(words))


def _name(kind: str, dataset: str, scale: Scale, seed: int) -> str:
    """
    >>> _name("ordered", "cifar10", "short", 0), _name("original", "celeba", "full", 1), _name("best", "vctk", "full", 0)
    ('cifar10-paper-short-ordered-0', 'celeba-original-full-1', 'vctk-best-full-ordered-0')
    """
    if kind == "original":
        return f"{dataset}-original-{scale}-{seed}"
    which = _recipe(kind)
    law = {"best": "ordered", "best-unordered": "unordered"}.get(kind, kind)
    return f"{dataset}-{which}-{scale}-{law}-{seed}"


def _recipe(kind: str) -> Recipe:
    return "original" if kind == "original" else "best" if kind.startswith("best") else "paper"


def _config(kind: str, dataset: Dataset, scale: Scale) -> RunConfig:
    config = recipe(dataset.name, _recipe(kind), dataset.shape)
    if kind == "spatial":
        config = with_layout(config, "spatial")
    config = scaled(config, scale)
    return with_truncation(config, Full()) if kind in SHARED else config


def trained(run: Plan, dataset: Dataset, device: torch.device, reporter: Reporter, pause: Pause) -> dict[str, Any]:
    """See to it that a run is there and finished: taken over, gone on with, or trained. Returns how it was trained."""
    if not Paths(run.folder).finished:
        reporter.say(f"training {run.folder.name}: {run.epochs} epochs")
        share = run.share if run.share is not None and Paths(run.share).after("pretrain").is_file() else None
        command = run.command
        if run.share is not None and share is None:  # as on another machine than the one that measured the ordered run
            reporter.say(f"{run.share} is not there: the first stage is trained again")
            command = command.replace(f" --share runs/{run.share.name}", "")
        train(run.config, dataset, run.folder, device, reporter, command, share, pause)
        # Compiled steps of several runs in one process would hit the compiler's limit and fall back without a word.
        torch.compiler.reset()
        pause.check(f"{run.folder.name} is trained")
    start = taken_over(run.folder, run.config, used(dataset, run.config))
    told = {key: start[key] for key in ("command", "examples", "hardware", "commit", "date")}
    return {**told, "precision": read_config(run.folder).precision}
