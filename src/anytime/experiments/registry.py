"""The experiments by name: which figure each one is, what it decides, and what it needs. Reading this needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anytime.core.errors import UserError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str
    figure: str
    summary: str
    datasets: tuple[str, ...]
    """The paper's; the first is the default."""
    runs: tuple[str, ...] = ()
    """Kinds of runs that are trained, or taken over from another experiment of the same scale."""
    inception: bool = False
    """Whether it measures FID."""
    multi_seed: bool = False
    """Whether more than one seed makes sense."""
    takes_samples: bool = False
    """Whether --samples makes sense."""
    scale: Literal["short", "full"] = "full"
    """What --scale is by default."""
    is_audio: bool = False
    """Whether it is about sounds rather than pictures."""

    @property
    def module(self) -> str:
        return f"anytime.experiments.{self.name.replace('-', '_')}"

    @property
    def has_data(self) -> bool:
        return self.name != "theorem"

    @property
    def needs(self) -> str:
        parts = [f"runs: {', '.join(self.runs)}"] if self.runs else []
        parts += ["the Inception network"] if self.inception else []
        return "; ".join(parts) or "nothing"


PAIR = ("ordered", "unordered")
BEST = ("best", "best-unordered")
"""The same pair by our own recipe."""
_ALL = (
    Experiment(
        name="theorem",
        figure="Theorem 1",
        summary="whether a best code is ordered, in a world small enough to enumerate",
        datasets=("discrete",),
    ),
    Experiment(
        name="layout",
        figure="Fig. 2",
        summary="a quarter of the codes: whole pictures channel-wise, top rows spatial-wise",
        datasets=("mnist", "celeba"),
        runs=("ordered", "spatial"),
    ),
    Experiment(
        name="ordering",
        figure="Fig. 3",
        summary="gain and error by code length: ordered best, PCA ahead of unordered when short",
        datasets=("cifar10",),
        runs=PAIR,
        multi_seed=True,
    ),
    Experiment(
        name="fid",
        figure="Fig. 4a",
        summary="FID by code length: ordered below unordered, little lost at 0.6 and 0.8",
        datasets=("cifar10", "celeba"),
        runs=(*PAIR, "original"),
        inception=True,
        multi_seed=True,
        takes_samples=True,
    ),
    Experiment(
        name="objective",
        figure="Eq. 6",
        summary="the loss as printed, in sums, against each term's mean; two ways to select the epoch",
        datasets=("cifar10",),
        runs=("ordered", "means-by-reconstruction", "sums", "sums-by-reconstruction"),
        inception=True,
        multi_seed=True,
        takes_samples=True,
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
        datasets=("mnist", "cifar10", "celeba"),
        runs=PAIR,
        takes_samples=True,
    ),
    Experiment(
        name="priority-code",
        figure="Appendix F",
        summary="how much closer samples are that share their first code",
        datasets=("mnist", "cifar10", "celeba"),
        runs=PAIR,
        multi_seed=True,
        takes_samples=True,
    ),
    Experiment(
        name="audio",
        figure="Appendix B",
        summary="sounds by code length: ordered ahead, low notes first, digits recognised, soon",
        datasets=("audiomnist", "vctk"),
        runs=(*PAIR, *BEST),
        takes_samples=True,
        is_audio=True,
    ),
    Experiment(
        name="vae",
        figure="Appendix C.1",
        summary="gain and error by code length of VAEs: ordered regular and better when short",
        datasets=("cifar10",),
        runs=("ordered-vae", "standard-vae"),
        multi_seed=True,
        scale="short",
    ),
    Experiment(
        name="priors",
        figure="Appendix C.2",
        summary="Transformer, LSTM, PixelCNN on the same codes: PixelCNN behind, except at 0.2",
        datasets=("cifar10",),
        runs=("ordered", "lstm", "pixelcnn"),
        inception=True,
        multi_seed=True,
        takes_samples=True,
        scale="short",
    ),
    Experiment(
        name="truncation",
        figure="Appendix C.3",
        summary="laws of truncation: Geo(0.03) marginally behind uniform, Geo(0.1) far when long",
        datasets=("cifar10",),
        runs=("ordered", "geometric-0.03", "geometric-0.1"),
        inception=True,
        multi_seed=True,
        takes_samples=True,
        scale="short",
    ),
    Experiment(
        name="regularization",
        figure="Appendix C.4",
        summary="FID by number of training pictures: ordered ahead, the more so the fewer",
        datasets=("cifar10",),
        runs=(*PAIR, *(f"{variant}-{size}" for size in ("25k", "10k", "5k") for variant in PAIR)),
        inception=True,
        multi_seed=True,
        takes_samples=True,
        scale="short",
    ),
    Experiment(
        name="tailored",
        figure="Appendix C.5",
        summary="one anytime model against one for each length: ahead, except when very short",
        datasets=("cifar10",),
        runs=(*PAIR, *(f"tailored-{fraction}" for fraction in (0.2, 0.4, 0.6, 0.8))),
        inception=True,
        multi_seed=True,
        takes_samples=True,
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
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def find(name: str) -> Experiment:
    """The experiment of that name, or an error that suggests the nearest."""
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}: {did_you_mean(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
