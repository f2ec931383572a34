"""anytime train NAME"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.data import find_dataset
from anytime.cli.options import Common, option, typed_command
from anytime.cli.stdout import say
from anytime.core.errors import UserError
from anytime.core.ranks import read_ranks

if TYPE_CHECKING:
    import torch

    from anytime.data import Dataset
    from anytime.evaluation.report import Report
    from anytime.recipes.build import AnyRunConfig


EXAMPLES = (
    "anytime train digits --scale smoke",
    "anytime train digits --scale smoke --truncation full --set prior.epochs=1 --reuse runs/digits-best --out runs/unordered",
)
RECIPES_WITHOUT_CODES = ("vae", "pixels", "pca")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime train`."""

    name: Annotated[str, tyro.conf.Positional, option("NAME")]
    """A dataset: digits (embedded), mnist, fashion-mnist, cifar10 or celeba; with --data also vctk, audiomnist or folder."""
    recipe: Annotated[
        Literal["paper", "best", "original", "vae", "pixels", "pca"] | None, option("paper|best|original|vae|pixels|pca")
    ] = None
    """paper: the paper's settings; best: our best; original: a VQ-VAE with a PixelCNN prior; vae: a VAE without a prior;
    pixels, pca: a density of dequantised pixels or of principal components. The default is best for digits, else paper."""
    truncation: Annotated[str | None, option("DISTRIBUTION")] = None
    """Truncation in the ordered stage: uniform, full (the unordered baseline), geometric:P or mixture:P."""
    layout: Annotated[Literal["channel", "spatial"] | None, option("channel|spatial")] = None
    """One code per channel of the feature map (paper, best), or one per spatial position."""
    length: Annotated[int | None, option("N")] = None
    """Number of codes in the channel layout; the networks are otherwise the same."""
    prior: Annotated[Literal["transformer", "lstm", "pixelcnn"] | None, option("transformer|lstm|pixelcnn")] = None
    """Type of prior: an lstm has as many weights as the transformer, a pixelcnn places the codes on a square."""
    data: Annotated[Path | None, option("DIR")] = None
    """A local copy of the dataset in its published format, or a folder of images or audio files."""
    skip_bad: Annotated[bool, option()] = False
    """Leave out files of --data that cannot be read, and say which; for folder only."""
    reuse: Annotated[Path | None, option("RUN")] = None
    """Reuse finished stages of another run with the same settings. Ordered and unordered training share the first stage."""
    size: Annotated[int | None, option("N")] = None
    """Height and width of the images; for folder only."""
    out: Annotated[Path | None, option("DIR")] = None
    """The run directory; by default runs/NAME-RECIPE."""
    scale: Annotated[Literal["smoke", "short", "full"], option("smoke|short|full")] = "full"
    """smoke: seconds on a CPU; short: 40 + 60 + 20 epochs; full: the epochs of the recipe."""
    log: Annotated[Literal["tensorboard", "wandb", "trackio"] | None, option("tensorboard|wandb|trackio")] = None
    """Send the config and the metrics to this experiment tracker; by default to TensorBoard, if it is installed."""
    overrides: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, option("KEY=VALUE", name="set")] = ()
    """Change a value of the recipe, such as prior.epochs=20 or model.prior.layers=4; may be repeated."""
    seed: Annotated[int, option("S")] = 0
    """Random seed: on a CPU, the same seed gives the same weights."""


def run(arguments: Arguments) -> dict[str, Any] | None:
    """Train a model and write its report; return None on all ranks but the first."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; run the same command again to go on from the last checkpoint") from None


def _run(arguments: Arguments) -> dict[str, Any] | None:
    ranks = read_ranks()
    if ranks.world_size > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # a lost rank is one sentence, not a stack of C++ frames
    from anytime.baselines.density import DensityRunConfig
    from anytime.baselines.vae import VAERunConfig
    from anytime.cli.console import TrainingConsole
    from anytime.core.device import pick_device
    from anytime.evaluation.report import write_density_report, write_report, write_vae_report
    from anytime.training.run import train, training_subset
    from anytime.training.tracking import check_tracker

    started = time.monotonic()
    check_tracker(arguments.log)  # before the data is read
    device = pick_device(arguments.device)
    dataset = find_dataset(arguments.name, arguments.data, arguments.size, arguments.scale == "smoke", arguments.skip_bad)
    config = _config(arguments, dataset, device)
    run_dir = arguments.out or Path("runs") / f"{arguments.name}-{arguments.recipe or config.recipe}"
    with TrainingConsole() if ranks.rank == 0 else contextlib.nullcontext() as console:
        if console is not None and dataset.synthetic:
            console.say(f"{arguments.name} is not available: training on {dataset.source}")
        if console is not None and (dataset.is_audio or arguments.skip_bad) and not dataset.synthetic:
            console.say(dataset.source)  # crops, scaling, padding, split, missing and skipped files
        settings, reuse = (dataset, run_dir, device, console, typed_command()), arguments.reuse
        write: Callable[[Dataset], Report]
        if isinstance(config, VAERunConfig):
            write = partial(write_vae_report, run_dir, train(config, *settings, reuse, log=arguments.log))
        elif isinstance(config, DensityRunConfig):
            density = train(config, *settings, log=arguments.log)
            write = partial(write_density_report, run_dir, density, seed=config.seed)
        else:
            write = partial(write_report, run_dir, train(config, *settings, reuse, log=arguments.log))
        if console is None:
            return None
        report = write(training_subset(dataset, config))
    seconds = time.monotonic() - started
    say(f"model    {run_dir / 'model'}")
    for name, path in report.paths.items():
        say(f"{name:<8} {path}")
    if arguments.scale == "smoke":
        print("smoke scale only shows that everything works: its samples are rough; leave out --scale smoke for a good model")
    after = "" if arguments.recipe in RECIPES_WITHOUT_CODES else f"; next: anytime sample {run_dir} --fraction 0.25"
    say(f"{seconds:.0f} s{after}")
    paths = {name: str(path) for name, path in report.paths.items()}
    return {"run": str(run_dir), "model": str(run_dir / "model"), "seconds": seconds, **paths, **report.metrics}


def _config(arguments: Arguments, dataset: Dataset, device: torch.device) -> AnyRunConfig:
    from anytime.recipes.build import build_config

    if arguments.reuse is not None and arguments.recipe in ("pixels", "pca"):
        raise UserError(f"--reuse does not go with --recipe {arguments.recipe}, which has one stage and no codes; leave it out")
    return build_config(
        arguments.name,
        arguments.recipe,
        dataset.shape,
        arguments.scale,
        truncation=arguments.truncation,
        layout=arguments.layout,
        prior=arguments.prior,
        length=arguments.length,
        seed=arguments.seed,
        device=device.type,
        overrides=arguments.overrides,
    )
