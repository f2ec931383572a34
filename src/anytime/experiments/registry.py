"""The experiments by name: which figure each one reproduces and what it needs. Importing this does not import torch."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Literal

from anytime.core.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Experiment:
    """One figure, table or theorem of the paper."""

    name: str
    figure: str
    summary: str
    datasets: tuple[str, ...]  # the paper's; the first is the default
    runs: tuple[str, ...] = ()  # variants that it trains, or reuses from another experiment of the same scale
    _: KW_ONLY
    scale: Literal["short", "full"] = "full"  # by default
    inception: bool = False  # measures FID
    multi_seed: bool = False  # accepts several seeds
    takes_samples: bool = False  # accepts a number of samples
    classifies: bool = False  # classifies samples where the dataset has labels
    is_audio: bool = False  # about audio rather than images
    shows_images: bool = False  # in its figure; the results file holds no images

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


PAPER_FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Fractions of the codes in the paper's figures."""
PAIR = ("ordered", "unordered")
BEST_PAIR = ("best", "best-unordered")
"""The same pair by our own recipe."""
_FID = partial(Experiment, inception=True, multi_seed=True, takes_samples=True)
_ALL = (
    Experiment("theorem", "Theorem 1", "is an optimal code ordered, in a world small enough to enumerate", ("discrete",)),
    Experiment(
        "layout", "Fig. 2", "a quarter of the codes: whole images channel-wise, top rows spatial-wise",
        ("mnist", "celeba"), ("ordered", "spatial"), shows_images=True,
    ),
    Experiment(
        "ordering", "Fig. 3", "gain and error by code length: ordered best, PCA ahead of unordered when short",
        ("cifar10",), PAIR, multi_seed=True,
    ),
    _FID(
        "fid", "Fig. 4a", "FID by code length: ordered below unordered, little lost at 0.6 and 0.8",
        ("cifar10", "celeba"), (*PAIR, "original"),
    ),
    _FID(
        "objective", "Eq. 6", "the loss as printed, in sums, against the mean of each term; two ways to select the epoch",
        ("cifar10",), ("ordered", "means-by-reconstruction", "sums", "sums-by-reconstruction"),
    ),
    Experiment(
        "speed", "Fig. 4b", "seconds by code length: linear, decoding small, faster than the baselines",
        ("cifar10", "celeba"),
    ),
    Experiment(
        "samples", "Fig. 5, Appendix G", "grids by code length: from coarse to fine, ordered against unordered",
        ("mnist", "cifar10", "celeba"), PAIR, takes_samples=True, shows_images=True,
    ),
    Experiment(
        "priority-code", "Appendix F", "how much closer samples are that share their first code",
        ("mnist", "cifar10", "celeba"), PAIR, multi_seed=True, takes_samples=True, shows_images=True,
    ),
    Experiment(
        "audio", "Appendix B", "audio by code length: ordered ahead, low band first, digits classified, early",
        ("audiomnist", "vctk"), (*PAIR, *BEST_PAIR), multi_seed=True, takes_samples=True, is_audio=True, shows_images=True,
    ),
    Experiment(
        "vae", "Appendix C.1", "gain and error by code length of VAEs: ordered regular and better when short",
        ("cifar10",), ("ordered-vae", "standard-vae", "ordered-vae-0.002", "standard-vae-0.002"),
        multi_seed=True, scale="short",
    ),
    _FID(
        "priors", "Appendix C.2", "Transformer, LSTM, PixelCNN on the same codes: PixelCNN worse, except at 0.2",
        ("cifar10",), ("ordered", "lstm", "pixelcnn"), scale="short",
    ),
    _FID(
        "truncation", "Appendix C.3", "distributions of truncation: Geo(0.03) little worse than uniform, Geo(0.1) far worse",
        ("cifar10",), ("ordered", "geometric-0.03", "geometric-0.1"), scale="short",
    ),
    _FID(
        "regularization", "Appendix C.4", "FID by number of training images: ordered better, the more so the fewer",
        ("cifar10",), (*PAIR, *(f"{variant}-{size}" for size in ("25k", "10k", "5k") for variant in PAIR)), scale="short",
    ),
    _FID(
        "tailored", "Appendix C.5", "one anytime model against one for each length: better, except when very short",
        ("cifar10",), (*PAIR, *(f"tailored-{fraction}" for fraction in PAPER_FRACTIONS[:-1])), scale="short",
    ),
    Experiment(
        "pca-prior", "Appendix D", "principal components against pixels: more bits per dimension and worse samples",
        ("mnist",), ("pixels", "pca"), multi_seed=True, takes_samples=True, classifies=True, shows_images=True,
    ),
)  # fmt: skip
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def find(name: str) -> Experiment:
    """Return the experiment of that name, or raise an error with the nearest name."""
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}: {did_you_mean(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
