"""The experiments by name: which figure each one reproduces and what it needs. Importing this does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from anytime.core.errors import UserError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure, table or theorem of the paper."""

    name: str
    figure: str
    summary: str
    datasets: tuple[str, ...]
    """The paper's; the first is the default."""
    runs: tuple[str, ...] = ()
    """Variants that it trains, or reuses from another experiment of the same scale."""
    inception: bool = False
    """Whether it measures FID."""
    multi_seed: bool = False
    """Whether it accepts several seeds."""
    takes_samples: bool = False
    """Whether the number of samples can be chosen."""
    scale: Literal["short", "full"] = "full"
    """The default scale."""
    is_audio: bool = False
    """Whether it is about audio rather than images."""
    shows_images: bool = False
    """Whether its figure holds images, which the results file does not."""

    @property
    def module(self) -> str:
        """Return the name of its module, which defines `measure`, `decide` and `draw`."""
        return f"anytime.experiments.{self.name.replace('-', '_')}"

    @property
    def has_data(self) -> bool:
        """Return whether it uses a dataset."""
        return self.name != "theorem"

    @property
    def needs(self) -> str:
        """Describe what it needs besides the data."""
        parts = [f"runs: {', '.join(self.runs)}"] if self.runs else []
        parts += ["the Inception network"] if self.inception else []
        return "; ".join(parts) or "nothing"


PAIR = ("ordered", "unordered")
BEST_PAIR = ("best", "best-unordered")
"""The same pair by our own recipe."""
_CIFAR10 = ("cifar10",)
_ALL_IMAGES = ("mnist", "cifar10", "celeba")
_FID = partial(Experiment, inception=True, multi_seed=True, takes_samples=True)
_ALL = (
    Experiment(
        name="theorem",
        figure="Theorem 1",
        summary="is an optimal code ordered, in a world small enough to enumerate",
        datasets=("discrete",),
    ),
    Experiment(
        name="layout",
        figure="Fig. 2",
        summary="a quarter of the codes: whole images channel-wise, top rows spatial-wise",
        datasets=("mnist", "celeba"),
        runs=("ordered", "spatial"),
        shows_images=True,
    ),
    Experiment(
        name="ordering",
        figure="Fig. 3",
        summary="gain and error by code length: ordered best, PCA ahead of unordered when short",
        datasets=_CIFAR10,
        runs=PAIR,
        multi_seed=True,
    ),
    _FID(
        name="fid",
        figure="Fig. 4a",
        summary="FID by code length: ordered below unordered, little lost at 0.6 and 0.8",
        datasets=("cifar10", "celeba"),
        runs=(*PAIR, "original"),
    ),
    _FID(
        name="objective",
        figure="Eq. 6",
        summary="the loss as printed, in sums, against the mean of each term; two ways to select the epoch",
        datasets=_CIFAR10,
        runs=("ordered", "means-by-reconstruction", "sums", "sums-by-reconstruction"),
    ),
    Experiment(
        name="speed",
        figure="Fig. 4b",
        summary="seconds by code length: linear, decoding small, faster than the baselines",
        datasets=("cifar10", "celeba"),
    ),
    Experiment(
        name="samples",
        figure="Fig. 5, Appendix G",
        summary="grids by code length: from coarse to fine, ordered against unordered",
        datasets=_ALL_IMAGES,
        runs=PAIR,
        takes_samples=True,
        shows_images=True,
    ),
    Experiment(
        name="priority-code",
        figure="Appendix F",
        summary="how much closer samples are that share their first code",
        datasets=_ALL_IMAGES,
        runs=PAIR,
        multi_seed=True,
        takes_samples=True,
        shows_images=True,
    ),
    Experiment(
        name="audio",
        figure="Appendix B",
        summary="audio by code length: ordered ahead, low band first, digits recognised, early",
        datasets=("audiomnist", "vctk"),
        runs=(*PAIR, *BEST_PAIR),
        takes_samples=True,
        is_audio=True,
        shows_images=True,
    ),
    Experiment(
        name="vae",
        figure="Appendix C.1",
        summary="gain and error by code length of VAEs: ordered regular and better when short",
        datasets=_CIFAR10,
        runs=("ordered-vae", "standard-vae"),
        multi_seed=True,
        scale="short",
    ),
    _FID(
        name="priors",
        figure="Appendix C.2",
        summary="Transformer, LSTM, PixelCNN on the same codes: PixelCNN worse, except at 0.2",
        datasets=_CIFAR10,
        runs=("ordered", "lstm", "pixelcnn"),
        scale="short",
    ),
    _FID(
        name="truncation",
        figure="Appendix C.3",
        summary="distributions of truncation: Geo(0.03) marginally worse than uniform, Geo(0.1) far worse when long",
        datasets=_CIFAR10,
        runs=("ordered", "geometric-0.03", "geometric-0.1"),
        scale="short",
    ),
    _FID(
        name="regularization",
        figure="Appendix C.4",
        summary="FID by number of training images: ordered better, the more so the fewer",
        datasets=_CIFAR10,
        runs=(*PAIR, *(f"{variant}-{size}" for size in ("25k", "10k", "5k") for variant in PAIR)),
        scale="short",
    ),
    _FID(
        name="tailored",
        figure="Appendix C.5",
        summary="one anytime model against one for each length: better, except when very short",
        datasets=_CIFAR10,
        runs=(*PAIR, *(f"tailored-{fraction}" for fraction in (0.2, 0.4, 0.6, 0.8))),
        scale="short",
    ),
    Experiment(
        name="pca-prior",
        figure="Appendix D",
        summary="bits per dimension of principal components against pixels: 1.22 against 0.80",
        datasets=("mnist",),
        runs=("pixels", "pca"),
        multi_seed=True,
        scale="short",
        shows_images=True,
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def find(name: str) -> Experiment:
    """Return the experiment of that name, or raise an error with the nearest name."""
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}: {did_you_mean(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
