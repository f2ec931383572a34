"""The runs that experiments compare: kinds with names of their own, each trained once for all experiments."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from anytime.autoencoders.truncation import parse
from anytime.baselines.density_training import DensityPlan, DensityRunConfig, density
from anytime.baselines.vae_training import VAEPlan, VAERunConfig, vae
from anytime.core.errors import UserError
from anytime.core.pause import Pause
from anytime.data import Dataset
from anytime.experiments.variants import KINDS, Kind
from anytime.recipes.base import Scale, computed_on
from anytime.recipes.modify import with_length, with_prior
from anytime.recipes.presets import SMOKE_EXAMPLES, RunConfig, recipe, scaled, with_layout, with_truncation
from anytime.sampling.budget import code_count
from anytime.training.log import Reporter
from anytime.training.run import train, train_plan, used
from anytime.training.run_dir import Paths, taken_over
from anytime.training.stages import AutoencoderStage, PriorStage, TuneStage, VAEStage

PUBLISHED = 50_000  # training pictures of CIFAR-10, of which the kinds with fewer are shares at smoke scale
SMALLEST = 32  # a smoke run's batch

AnyConfig = RunConfig | VAERunConfig | DensityRunConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: what is trained, where, and the command that does the same by hand."""

    kind: str
    config: AnyConfig
    folder: Path
    share: Path | None  # a run whose first stages are the same
    command: str
    full_epochs: str  # those of the recipe before it was scaled down

    @property
    def epochs(self) -> str:
        return _epochs(self.config)

    @property
    def codes(self) -> RunConfig:
        """The config of a run with codes."""
        assert isinstance(self.config, RunConfig)
        return self.config


def stages(config: AnyConfig) -> dict[str, AutoencoderStage | VAEStage | PriorStage | TuneStage]:
    """The stages of a run by name, in their order."""
    named = {name: getattr(config, name, None) for name in ("pretrain", "ordered", "prior", "tune")}
    return {name: stage for name, stage in named.items() if stage is not None}


def _epochs(config: AnyConfig) -> str:
    return " + ".join(str(stage.epochs) for stage in stages(config).values())


def plan(kind: str, dataset: Dataset, scale: Scale, seed: int, device: str, runs: Path, local: bool = False) -> Plan:
    """The run of a kind: `runs/cifar10-paper-short-ordered-0`. `local` says that the data was given with --data."""
    told = KINDS[kind]
    full = _config(told, dataset, "full")
    config = computed_on(replace(_config(told, dataset, scale), seed=seed), device)
    name = _name(kind, dataset.name, scale, seed)
    share = _name(told.share, dataset.name, scale, seed) if told.share else None
    words = ["anytime", "train", dataset.name, "--recipe", told.recipe]
    words += ["--layout", told.layout] if told.layout else []
    words += ["--length", str(_length(full))] if told.fraction else []
    words += ["--prior", told.prior] if told.prior else []
    words += [] if scale == "full" else ["--scale", scale]
    words += ["--truncation", told.truncation] if told.truncation else []
    words += ["--set", f"examples={config.examples}"] if told.examples else []
    for key, value in _objective(told).items():
        words += [word for stage in ("pretrain", "ordered") for word in ("--set", f"{stage}.{key}={value}")]
    words += ["--data", "DIR"] if local else []
    words += ["--seed", str(seed)] if seed else []
    words += ["--share", f"runs/{share}"] if share else []
    words += ["--out", f"runs/{name}"]
    return Plan(kind, config, runs / name, runs / share if share else None, shlex.join(words), _epochs(full))


def _name(kind: str, dataset: str, scale: Scale, seed: int) -> str:
    """
    >>> _name("ordered", "cifar10", "short", 0), _name("original", "celeba", "full", 1), _name("best", "vctk", "full", 0)
    ('cifar10-paper-short-ordered-0', 'celeba-original-full-1', 'vctk-best-full-ordered-0')
    """
    told = KINDS[kind]
    called = kind if told.called is None else told.called
    return "-".join([dataset, told.recipe, scale, *([] if called == told.recipe else [called]), str(seed)])


def _config(told: Kind, dataset: Dataset, scale: Scale) -> AnyConfig:
    """What `anytime train` makes of the same words."""
    name, shape = dataset.name, dataset.shape
    if told.recipe == "pixels" or told.recipe == "pca":
        return density(name, shape, told.recipe, scale)
    if told.recipe == "vae":
        run = vae(name, shape, scale)
        return replace(run, ordered=replace(run.ordered, truncation=parse(told.truncation))) if told.truncation else run
    config = recipe(name, told.recipe, shape)
    config = with_layout(config, told.layout) if told.layout else config
    config = with_length(config, code_count(_length(config), fraction=told.fraction)) if told.fraction else config
    config = with_prior(config, told.prior) if told.prior else config
    config = scaled(config, scale)
    config = with_truncation(config, parse(told.truncation)) if told.truncation else config
    if changes := _objective(told):
        config = replace(config, pretrain=replace(config.pretrain, **changes), ordered=replace(config.ordered, **changes))
    return replace(config, examples=_examples(told.examples, scale)) if told.examples else config


def _objective(told: Kind) -> dict[str, Any]:
    """What a kind changes in both stages of the autoencoder."""
    changes = {"reduction": told.reduction, "select_by": told.select_by}
    return {key: value for key, value in changes.items() if value is not None}


def _length(config: AnyConfig) -> int:
    assert isinstance(config, RunConfig)
    return config.model.autoencoder.length


def _examples(count: int, scale: Scale) -> int:
    return count if scale != "smoke" else max(SMALLEST, count * SMOKE_EXAMPLES // PUBLISHED)


def trained(run: Plan, dataset: Dataset, device: torch.device, reporter: Reporter, pause: Pause) -> dict[str, Any]:
    """See to it that a run is there and finished: taken over, gone on with, or trained. Returns how it was trained."""
    if not Paths(run.folder).finished:
        reporter.say(f"training {run.folder.name}: {run.epochs} epochs")
        share, command = _shared(run, reporter)
        _train(run.config, dataset, run.folder, device, reporter, command, share, pause)
        # Compiled steps of several runs in one process would hit the compiler's limit and fall back without a word.
        torch.compiler.reset()
        pause.check(f"{run.folder.name} is trained")
    start = taken_over(run.folder, run.config, used(dataset, run.config))
    return {key: start[key] for key in ("command", "examples", "hardware", "commit", "date", "precision")}


def _shared(run: Plan, reporter: Reporter) -> tuple[Path | None, str]:
    """The run whose first stages are taken over, and the command that says so.

    It may be missing, as on another machine than the one that measured it.
    """
    codes = KINDS[run.kind].codes
    if run.share is None or Paths(run.share).after("ordered" if codes else "pretrain").is_file():
        return run.share, run.command
    if any(Paths(run.folder).checkpoints.glob("step-*")):  # begun, and past what it shares
        return None, run.command
    if codes:
        raise UserError(
            f"{run.folder.name} is trained on the codes of {run.share}, which is not there; bring that run here, or remove "
            "what was measured of it to train it again"
        )
    reporter.say(f"{run.share} is not there: the first stage is trained again")
    return None, run.command.replace(f" --share runs/{run.share.name}", "")


def _train(
    config: AnyConfig,
    dataset: Dataset,
    folder: Path,
    device: torch.device,
    reporter: Reporter,
    command: str,
    share: Path | None,
    pause: Pause,
) -> None:
    match config:
        case RunConfig():
            train(config, dataset, folder, device, reporter, command, share, pause)
        case VAERunConfig():
            train_plan(VAEPlan, config, dataset, folder, device, reporter, command, share, pause)
        case DensityRunConfig():
            train_plan(DensityPlan, config, dataset, folder, device, reporter, command, share, pause)
