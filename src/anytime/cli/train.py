"""anytime train NAME"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.datasets import find_dataset
from anytime.cli.options import Common, typed_command
from anytime.core.errors import UserError

if TYPE_CHECKING:
    import torch

    from anytime.baselines.density import Space
    from anytime.baselines.density_training import DensityRunConfig
    from anytime.baselines.vae_training import VAERunConfig
    from anytime.cli.console import TrainingConsole
    from anytime.data import Dataset
    from anytime.evaluation.report import Report
    from anytime.recipes.presets import Recipe, RunConfig


CODELESS_KINDS = ("vae", "pixels", "pca")
"""Recipes of models without codes."""


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """A data set: digits (embedded), mnist, fashion-mnist, cifar10, celeba; with --data vctk, audiomnist or folder."""
    recipe: Literal["paper", "best", "original", "vae", "pixels", "pca"] | None = None
    """The paper's, our best, the original VQ-VAE with a PixelCNN, a VAE without a prior, or a density of dequantised pixels or
    of their principal components; best for digits, else paper."""
    truncation: Annotated[str | None, tyro.conf.arg(metavar="DISTRIBUTION")] = None
    """Law of the second stage: uniform, full (the unordered baseline), geometric:P or mixture:SHARE."""
    layout: Literal["channel", "spatial"] | None = None
    """One code per channel of the feature map (paper, best), or one per place of it."""
    length: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Another number of channel-wise codes, networks and prior otherwise equal."""
    prior: Literal["transformer", "lstm", "pixelcnn"] | None = None
    """Another kind of prior: an LSTM with the Transformer's number of weights, or a PixelCNN with the codes on a square."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """A local copy of the set in its published format, or the folder of pictures or sounds."""
    reuse: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Take over the stages that another run has done just so, as ordered and unordered training share the first."""
    size: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Height and width of the pictures, for folder."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The run's folder; by default runs/NAME-RECIPE."""
    scale: Literal["smoke", "short", "full"] = "full"
    """smoke: seconds on a CPU; short: 40 + 60 + 20 epochs; full: the recipe's own."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Change any value of the recipe, such as prior.layers=4."""
    seed: int = 0


def run(arguments: Arguments) -> dict[str, Any] | None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
    from anytime.cli.console import TrainingConsole
    from anytime.core.device import pick_device

    started = time.monotonic()
    device = pick_device(arguments.device)
    dataset = find_dataset(arguments.name, arguments.data, arguments.size, arguments.scale == "smoke")
    config = _config(arguments, dataset, device)
    run_dir = arguments.out or Path("runs") / f"{arguments.name}-{arguments.recipe or config.recipe}"
    is_main_process = os.environ.get("RANK", "0") == "0"
    with TrainingConsole() if is_main_process else contextlib.nullcontext() as console:
        if console is not None and dataset.synthetic:
            console.say(f"{arguments.name} is not here: training on {dataset.source}")
        if console is not None and dataset.is_audio and not dataset.synthetic:
            console.say(dataset.source)  # how it was cut, scaled, padded and split, and what is missing
        report = _train_and_report(config, dataset, run_dir, device, console, arguments.reuse)
        if report is None:
            return None
    seconds = time.monotonic() - started
    print(f"model    {run_dir / 'model'}")
    for name, path in report.paths.items():
        print(f"{name:<8} {path}")
    after = "" if arguments.recipe in CODELESS_KINDS else f"; next: anytime sample {run_dir} --fraction 0.25"
    print(f"{seconds:.0f} s{after}")
    paths = {name: str(path) for name, path in report.paths.items()}
    return {"run": str(run_dir), "model": str(run_dir / "model"), "seconds": seconds, **paths, **report.metrics}


def _train_and_report(
    config: RunConfig | VAERunConfig | DensityRunConfig,
    dataset: Dataset,
    run_dir: Path,
    device: torch.device,
    console: TrainingConsole | None,
    reuse: Path | None,
) -> Report | None:
    """Train, and report where this process is the one to do so."""
    from anytime.baselines.density_training import DensityRunConfig, DensityRunSpec
    from anytime.baselines.vae_training import VAERunConfig, VAERunSpec
    from anytime.evaluation.report import write_density_report, write_report, write_vae_report
    from anytime.training.run import train, train_spec, training_subset

    if isinstance(config, VAERunConfig):
        vae = train_spec(VAERunSpec, config, dataset, run_dir, device, console, typed_command(), reuse)
        return None if console is None else write_vae_report(run_dir, vae, training_subset(dataset, config))
    if isinstance(config, DensityRunConfig):
        density = train_spec(DensityRunSpec, config, dataset, run_dir, device, console, typed_command())
        return (
            None if console is None else write_density_report(run_dir, density, training_subset(dataset, config), config.seed)
        )
    model = train(config, dataset, run_dir, device, console, typed_command(), reuse)
    return None if console is None else write_report(run_dir, model, training_subset(dataset, config))


def _config(
    arguments: Arguments, dataset: Dataset, device: torch.device
) -> RunConfig | VAERunConfig | DensityRunConfig:  # fmt: skip
    if arguments.recipe == "vae":
        return _vae_config(arguments, dataset, device)
    if arguments.recipe == "pixels" or arguments.recipe == "pca":
        return _density_config(arguments, arguments.recipe, dataset, device)
    return _codes_config(arguments, arguments.recipe, dataset, device)


def _codes_config(arguments: Arguments, recipe_name: Recipe | None, dataset: Dataset, device: torch.device) -> RunConfig:
    from anytime.autoencoders.truncation import parse_truncation
    from anytime.core.config import override
    from anytime.recipes.base import with_device_defaults
    from anytime.recipes.modify import with_length, with_prior
    from anytime.recipes.presets import recipe, scaled, with_layout, with_truncation

    config = recipe(arguments.name, recipe_name, dataset.shape)
    if arguments.layout is not None:
        config = with_layout(config, arguments.layout)
    if arguments.length is not None:
        config = with_length(config, arguments.length)
    if arguments.prior is not None:
        config = with_prior(config, arguments.prior)
    config = replace(scaled(config, arguments.scale), seed=arguments.seed)
    if arguments.truncation is not None:
        config = with_truncation(config, parse_truncation(arguments.truncation))
    return override(with_device_defaults(config, device.type), arguments.set)


def _vae_config(arguments: Arguments, dataset: Dataset, device: torch.device) -> VAERunConfig:
    from anytime.autoencoders.truncation import parse_truncation
    from anytime.baselines.vae_training import vae
    from anytime.core.config import override
    from anytime.recipes.base import with_device_defaults

    if arguments.prior is not None or arguments.layout is not None:
        flag = "--layout" if arguments.prior is None else "--prior"
        raise UserError(f"{flag} does not go with --recipe vae, which has channels for dimensions and no prior; leave it out")
    if arguments.length is not None and arguments.length < 1:
        raise UserError(f"--length must be at least 1, not {arguments.length}")
    config = replace(vae(arguments.name, dataset.shape, arguments.scale, arguments.length), seed=arguments.seed)
    if arguments.truncation is not None:
        config = replace(config, ordered=replace(config.ordered, truncation=parse_truncation(arguments.truncation)))
    return override(with_device_defaults(config, device.type), arguments.set)


def _density_config(arguments: Arguments, space: Space, dataset: Dataset, device: torch.device) -> DensityRunConfig:
    from anytime.baselines.density_training import density
    from anytime.core.config import override
    from anytime.recipes.base import with_device_defaults

    for flag in ("prior", "layout", "length", "truncation", "reuse"):
        if getattr(arguments, flag) is not None:
            raise UserError(f"--{flag} does not go with --recipe {space}, which has one stage and no codes; leave it out")
    config = replace(density(arguments.name, dataset.shape, space, arguments.scale), seed=arguments.seed)
    return override(with_device_defaults(config, device.type), arguments.set)
