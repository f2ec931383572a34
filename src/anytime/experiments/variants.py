"""The runs that experiments compare. Each variant is trained once for all experiments."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from anytime.autoencoders.layout import Layout
from anytime.autoencoders.losses import Reduction
from anytime.baselines.vae import VAEStage
from anytime.core.errors import UserError
from anytime.core.pause import Pause
from anytime.core.progress import Reporter
from anytime.data import Dataset
from anytime.experiments.cache import TrainingRecord
from anytime.experiments.registry import PAPER_FRACTIONS
from anytime.recipes.build import AnyRunConfig, build_config
from anytime.recipes.modify import PriorType
from anytime.sampling.budget import code_count
from anytime.training.config import SMOKE_EXAMPLES, BaseRunConfig, RunConfig, Scale
from anytime.training.run import train, training_subset
from anytime.training.run_dir import RunPaths, check_finished_run
from anytime.training.stages import AutoencoderStage, FinetuneStage, PriorStage

VAE_VARIANCES = (0.01, 0.002)
"""Variances of a VAE's decoder; the first is the recipe's."""
TRAIN_SIZES = (25_000, 10_000, 5_000)
CIFAR10_EXAMPLES = 50_000  # a smoke run takes the same share of its examples as `examples` is of these
MIN_EXAMPLES = 32  # a smoke run's batch


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A recipe and what changes in it."""

    name: str
    recipe: Literal["paper", "best", "original", "vae", "pixels", "pca"] = "paper"
    truncation: str | None = None
    layout: Layout | None = None
    prior: PriorType | None = None
    fraction: float | None = None  # of the recipe's length
    examples: int | None = None  # training images; None for all
    reduction: Reduction | None = None  # of the autoencoder's loss
    select_by: Literal["total", "reconstruction"] | None = None  # validation loss that selects the autoencoder's epoch
    variance: float | None = None  # of a VAE's decoder; None for the recipe's
    reuse: str | None = None  # the variant whose first stages are the same
    run_suffix: str | None = None  # follows the recipe in the run's name; None for the variant's name

    @property
    def reuses_codes(self) -> bool:
        """Return whether the whole autoencoder is reused: another prior on the same codes."""
        return self.reuse is not None and self.prior is not None

    @property
    def overrides(self) -> list[str]:
        """Return the settings that change, as `--set` takes them: of both stages of the autoencoder, and of a VAE."""
        changes = {"reduction": self.reduction, "select_by": self.select_by}
        stages = [f"{stage}.{key}={value}" for key, value in changes.items() if value for stage in ("pretrain", "ordered")]
        return stages + ([f"model.variance={self.variance:g}"] if self.variance else [])

    def run_name(self, dataset: str, scale: Scale, seed: int) -> str:
        """Return the name of the run directory.

        >>> VARIANTS["ordered"].run_name("cifar10", "short", 0), VARIANTS["original"].run_name("celeba", "full", 1)
        ('cifar10-paper-short-ordered-0', 'celeba-original-full-1')
        """
        suffix = self.run_suffix or self.name
        return "-".join([dataset, self.recipe, scale, *([] if suffix == self.recipe else [suffix]), str(seed)])


def tailored(fraction: float) -> str:
    """Return the variant made for a fraction of the codes; for all of them it is the unordered model.

    >>> tailored(0.2), tailored(1.0)
    ('tailored-0.2', 'unordered')
    """
    return "unordered" if fraction == 1 else f"tailored-{fraction:g}"


def with_examples(variant: str, examples: int | None) -> str:
    """Return the variant with that number of training images, None for all.

    >>> with_examples("ordered", 5000), with_examples("ordered", None)
    ('ordered-5k', 'ordered')
    """
    return variant if examples is None else f"{variant}-{examples // 1000}k"


def with_variance(variant: str, variance: float) -> str:
    """Return the VAE's variant with that variance of the decoder.

    >>> with_variance("ordered-vae", 0.002), with_variance("ordered-vae", 0.01)
    ('ordered-vae-0.002', 'ordered-vae')
    """
    return variant if variance == VAE_VARIANCES[0] else f"{variant}-{variance:g}"


_ALL = (
    Variant(name="ordered"),
    Variant(name="unordered", truncation="full", reuse="ordered"),
    Variant(name="spatial", layout="spatial"),
    Variant(name="original", recipe="original"),
    Variant(name="best", recipe="best", run_suffix="ordered"),
    Variant(name="best-unordered", recipe="best", truncation="full", reuse="best", run_suffix="unordered"),
    Variant(name="lstm", prior="lstm", reuse="ordered"),
    Variant(name="pixelcnn", prior="pixelcnn", reuse="ordered"),
    Variant(name="geometric-0.03", truncation="geometric:0.03", reuse="ordered"),
    Variant(name="geometric-0.1", truncation="geometric:0.1", reuse="ordered"),
    *(Variant(name=tailored(f), truncation="full", fraction=f) for f in PAPER_FRACTIONS[:-1]),
    *(Variant(name=with_examples("ordered", n), examples=n) for n in TRAIN_SIZES),
    *(
        Variant(name=with_examples("unordered", n), truncation="full", examples=n, reuse=with_examples("ordered", n))
        for n in TRAIN_SIZES
    ),
    Variant(name="ordered-vae", recipe="vae"),
    Variant(name="standard-vae", recipe="vae", truncation="full", reuse="ordered-vae"),
    Variant(name="ordered-vae-0.002", recipe="vae", variance=0.002),
    Variant(name="standard-vae-0.002", recipe="vae", truncation="full", reuse="ordered-vae-0.002", variance=0.002),
    Variant(name="sums", reduction="sum"),
    Variant(name="sums-by-reconstruction", reduction="sum", select_by="reconstruction"),
    Variant(name="means-by-reconstruction", select_by="reconstruction"),
    Variant(name="pixels", recipe="pixels"),
    Variant(name="pca", recipe="pca"),
)
VARIANTS = {variant.name: variant for variant in _ALL}


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: what is trained, where, and the command that trains the same."""

    variant: Variant
    config: AnyRunConfig
    run_dir: Path
    reuse: Path | None  # a run whose first stages are the same
    command: str
    epochs: str  # of all stages, such as `200 + 200 + 50`
    full_epochs: str  # of the recipe at full scale

    @property
    def codes(self) -> RunConfig:
        """Return the config of a run with codes."""
        assert isinstance(self.config, RunConfig)
        return self.config


def stages(config: AnyRunConfig) -> dict[str, AutoencoderStage | VAEStage | PriorStage | FinetuneStage]:
    """Return the stages of a run by name, in order."""
    named = {name: getattr(config, name, None) for name in ("pretrain", "ordered", "prior", "finetune")}
    return {name: stage for name, stage in named.items() if stage is not None}


def plan(name: str, dataset: Dataset, scale: Scale, seed: int, device: str, runs: Path, local: bool = False) -> PlannedRun:
    """Plan the run of a variant: `runs/cifar10-paper-short-ordered-0`. `local` says that the data is a local copy."""
    variant = VARIANTS[name]
    recipe = partial(build_config, dataset.name, variant.recipe, dataset.shape)
    length, examples, overrides = None, variant.examples, list(variant.overrides)
    if variant.fraction:
        unchanged = recipe()
        assert isinstance(unchanged, RunConfig)
        length = code_count(unchanged.model.autoencoder.length, fraction=variant.fraction)
    if examples and scale == "smoke":
        examples = max(MIN_EXAMPLES, examples * SMOKE_EXAMPLES // CIFAR10_EXAMPLES)
    changed = partial(recipe, truncation=variant.truncation, layout=variant.layout, prior=variant.prior, length=length)
    full = changed(overrides=variant.overrides)
    if examples:
        overrides += equal_steps(changed(scale=scale), len(dataset.train), examples)
    config = changed(scale=scale, examples=examples, seed=seed, device=device, overrides=overrides)
    epochs = [" + ".join(str(stage.epochs) for stage in stages(each).values()) for each in (config, full)]
    run_name = variant.run_name(dataset.name, scale, seed)
    reuse = VARIANTS[variant.reuse].run_name(dataset.name, scale, seed) if variant.reuse else None
    words = ["anytime", "train", dataset.name, "--recipe", variant.recipe]
    words += ["--layout", variant.layout] if variant.layout else []
    words += ["--length", str(length)] if length else []
    words += ["--prior", variant.prior] if variant.prior else []
    words += [] if scale == "full" else ["--scale", scale]
    words += ["--truncation", variant.truncation] if variant.truncation else []
    words += ["--set", f"examples={config.examples}"] if variant.examples else []
    words += [word for override in overrides for word in ("--set", override)]
    words += ["--data", "DIR"] if local else []
    words += ["--seed", str(seed)] if seed else []
    words += ["--reuse", f"runs/{reuse}"] if reuse else []
    words += ["--out", f"runs/{run_name}"]
    return PlannedRun(variant, config, runs / run_name, runs / reuse if reuse else None, shlex.join(words), *epochs)


def equal_steps(config: AnyRunConfig, available: int, examples: int) -> list[str]:
    """Return the epochs with which `examples` examples take as many steps as all that are available, as `--set` takes them."""
    every = min(available, config.examples or available)

    def epochs(stage: AutoencoderStage | VAEStage | PriorStage | FinetuneStage) -> int:
        steps = [max(1, count // stage.batch) for count in (every, examples)]
        return max(1, round(stage.epochs * steps[0] / steps[1]))

    return [f"{name}.epochs={epochs(stage)}" for name, stage in stages(config).items()]


def ensure_trained(run: PlannedRun, dataset: Dataset, device: torch.device, reporter: Reporter, pause: Pause) -> TrainingRecord:
    """Train a run, or resume it, unless it is finished; return how it was trained."""
    config: BaseRunConfig[Any] = run.config
    if not RunPaths(run.run_dir).finished:
        reporter.say(f"training {run.run_dir.name}: {run.epochs} epochs")
        reuse, command = _reused_run(run, reporter)
        train(config, dataset, run.run_dir, device, reporter, command, reuse, pause)
        # Compiled steps of several runs in one process would hit the compiler's limit and silently fall back to eager.
        torch.compiler.reset()
        pause.check(f"{run.run_dir.name} is trained")
    start = check_finished_run(run.run_dir, config, training_subset(dataset, config))
    return TrainingRecord(**{key: start[key] for key in ("command", "examples", "hardware", "commit", "date", "precision")})


def _reused_run(run: PlannedRun, reporter: Reporter) -> tuple[Path | None, str]:
    """Return the run whose first stages are reused, and the command. That run may be missing, as on another machine."""
    last_reused = "ordered" if run.variant.reuses_codes else "pretrain"
    if run.reuse is None or RunPaths(run.reuse).stage_weights(last_reused).is_file():
        return run.reuse, run.command
    if any(RunPaths(run.run_dir).checkpoints.glob("step-*")):  # started, and past the reused stages
        return None, run.command
    if run.variant.reuses_codes:
        missing = f"{run.run_dir.name} is trained on the codes of {run.reuse}, which is missing"
        raise UserError(f"{missing}; copy that run here, or remove its measurements to train it again")
    reporter.say(f"{run.reuse} is missing: the first stage is trained again")
    return None, run.command.replace(f" --reuse runs/{run.reuse.name}", "")
