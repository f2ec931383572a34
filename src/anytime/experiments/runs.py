"""The runs that experiments compare: kinds with names of their own, each trained once for all experiments."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anytime.baselines.density_training import DensityRunConfig, DensityRunSpec
from anytime.baselines.vae_training import VAERunConfig, VAERunSpec, VAEStage
from anytime.core.errors import UserError
from anytime.core.pause import Pause
from anytime.core.progress import Reporter
from anytime.data import Dataset
from anytime.experiments.variants import VARIANTS, Variant
from anytime.recipes.build import AnyRunConfig, build_config
from anytime.sampling.budget import code_count
from anytime.training.config import SMOKE_EXAMPLES, RunConfig, Scale
from anytime.training.run import train, train_spec, training_subset
from anytime.training.run_dir import RunPaths, check_finished_run
from anytime.training.stages import AutoencoderStage, FinetuneStage, PriorStage

CIFAR10_EXAMPLES = 50_000  # training pictures of CIFAR-10, of which the kinds with fewer are shares at smoke scale
MIN_EXAMPLES = 32  # a smoke run's batch


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: what is trained, where, and the command that does the same by hand."""

    variant: str
    config: AnyRunConfig
    run_dir: Path
    reuse: Path | None  # a run whose first stages are the same
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


def stages(config: AnyRunConfig) -> dict[str, AutoencoderStage | VAEStage | PriorStage | FinetuneStage]:
    """The stages of a run by name, in their order."""
    named = {name: getattr(config, name, None) for name in ("pretrain", "ordered", "prior", "finetune")}
    return {name: stage for name, stage in named.items() if stage is not None}


def _epochs(config: AnyRunConfig) -> str:
    return " + ".join(str(stage.epochs) for stage in stages(config).values())


def plan(variant: str, dataset: Dataset, scale: Scale, seed: int, device: str, runs: Path, local: bool = False) -> PlannedRun:
    """The run of a kind: `runs/cifar10-paper-short-ordered-0`. `local` says that the data was given with --data."""
    spec = VARIANTS[variant]
    full = _config(spec, dataset, "full")
    config = _config(spec, dataset, scale, seed, device)
    name = _name(variant, dataset.name, scale, seed)
    reuse = _name(spec.reuse, dataset.name, scale, seed) if spec.reuse else None
    words = ["anytime", "train", dataset.name, "--recipe", spec.recipe]
    words += ["--layout", spec.layout] if spec.layout else []
    words += ["--length", str(_length(full))] if spec.fraction else []
    words += ["--prior", spec.prior] if spec.prior else []
    words += [] if scale == "full" else ["--scale", scale]
    words += ["--truncation", spec.truncation] if spec.truncation else []
    words += ["--set", f"examples={config.examples}"] if spec.examples else []
    words += [word for change in _objective(spec) for word in ("--set", change)]
    words += ["--data", "DIR"] if local else []
    words += ["--seed", str(seed)] if seed else []
    words += ["--reuse", f"runs/{reuse}"] if reuse else []
    words += ["--out", f"runs/{name}"]
    return PlannedRun(variant, config, runs / name, runs / reuse if reuse else None, shlex.join(words), _epochs(full))


def _name(variant: str, dataset: str, scale: Scale, seed: int) -> str:
    """
    >>> _name("ordered", "cifar10", "short", 0), _name("original", "celeba", "full", 1), _name("best", "vctk", "full", 0)
    ('cifar10-paper-short-ordered-0', 'celeba-original-full-1', 'vctk-best-full-ordered-0')
    """
    spec = VARIANTS[variant]
    run_suffix = variant if spec.run_suffix is None else spec.run_suffix
    return "-".join([dataset, spec.recipe, scale, *([] if run_suffix == spec.recipe else [run_suffix]), str(seed)])


def _config(spec: Variant, dataset: Dataset, scale: Scale, seed: int = 0, device: str = "cpu") -> AnyRunConfig:
    """Build what `anytime train` builds from the same words."""
    name, shape = dataset.name, dataset.shape
    length = None
    if spec.fraction:
        length = code_count(_length(build_config(name, spec.recipe, shape)), fraction=spec.fraction)
    return build_config(
        name,
        spec.recipe,
        shape,
        scale,
        truncation=spec.truncation,
        layout=spec.layout,
        prior=spec.prior,
        length=length,
        examples=_examples(spec.examples, scale) if spec.examples else None,
        seed=seed,
        device=device,
        overrides=_objective(spec),
    )


def _objective(spec: Variant) -> list[str]:
    """Return what a variant changes in both stages of the autoencoder, as `--set` takes it."""
    changes = {"reduction": spec.reduction, "select_by": spec.select_by}
    return [f"{stage}.{key}={value}" for key, value in changes.items() if value for stage in ("pretrain", "ordered")]


def _length(config: AnyRunConfig) -> int:
    assert isinstance(config, RunConfig)
    return config.model.autoencoder.length


def _examples(count: int, scale: Scale) -> int:
    return count if scale != "smoke" else max(MIN_EXAMPLES, count * SMOKE_EXAMPLES // CIFAR10_EXAMPLES)


def ensure_trained(run: PlannedRun, dataset: Dataset, device: torch.device, reporter: Reporter, pause: Pause) -> dict[str, Any]:
    """See to it that a run is there and finished: taken over, gone on with, or trained. Returns how it was trained."""
    if not RunPaths(run.run_dir).finished:
        reporter.say(f"training {run.run_dir.name}: {run.epochs} epochs")
        reuse, command = _reused_run(run, reporter)
        _train(run.config, dataset, run.run_dir, device, reporter, command, reuse, pause)
        # Compiled steps of several runs in one process would hit the compiler's limit and fall back without a word.
        torch.compiler.reset()
        pause.check(f"{run.run_dir.name} is trained")
    start = check_finished_run(run.run_dir, run.config, training_subset(dataset, run.config))
    return {key: start[key] for key in ("command", "examples", "hardware", "commit", "date", "precision")}


def _reused_run(run: PlannedRun, reporter: Reporter) -> tuple[Path | None, str]:
    """The run whose first stages are taken over, and the command that says so.

    It may be missing, as on another machine than the one that measured it.
    """
    codes = VARIANTS[run.variant].codes
    if run.reuse is None or RunPaths(run.reuse).stage_weights("ordered" if codes else "pretrain").is_file():
        return run.reuse, run.command
    if any(RunPaths(run.run_dir).checkpoints.glob("step-*")):  # begun, and past what it shares
        return None, run.command
    if codes:
        raise UserError(
            f"{run.run_dir.name} is trained on the codes of {run.reuse}, which is not there; bring that run here, or remove "
            "what was measured of it to train it again"
        )
    reporter.say(f"{run.reuse} is not there: the first stage is trained again")
    return None, run.command.replace(f" --reuse runs/{run.reuse.name}", "")


def _train(
    config: AnyRunConfig,
    dataset: Dataset,
    run_dir: Path,
    device: torch.device,
    reporter: Reporter,
    command: str,
    reuse: Path | None,
    pause: Pause,
) -> None:
    match config:
        case RunConfig():
            train(config, dataset, run_dir, device, reporter, command, reuse, pause)
        case VAERunConfig():
            train_spec(VAERunSpec, config, dataset, run_dir, device, reporter, command, reuse, pause)
        case DensityRunConfig():
            train_spec(DensityRunSpec, config, dataset, run_dir, device, reporter, command, reuse, pause)
