"""The experiments by name: which figure each one is, what it decides, and what it needs. Reading this needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anytime.core.errors import UserError, nearest


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str
    figure: str
    decides: str
    datasets: tuple[str, ...]
    """The paper's; the first is the default."""
    runs: tuple[str, ...] = ()
    """Kinds of runs that are trained, or taken over from another experiment of the same scale."""
    inception: bool = False
    """Whether it measures FID."""
    several: bool = False
    """Whether more than one seed makes sense."""
    counts: bool = False
    """Whether --samples makes sense."""
    scale: Literal["short", "full"] = "full"
    """What --scale is by default."""
    sound: bool = False
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
        decides="whether a best code is ordered, in a world small enough to enumerate",
        datasets=("discrete",),
    ),
    Experiment(
        name="layout",
        figure="Fig. 2",
        decides="a quarter of the codes: whole pictures channel-wise, top rows spatial-wise",
        datasets=("mnist", "celeba"),
        runs=("ordered", "spatial"),
    ),
    Experiment(
        name="ordering",
        figure="Fig. 3",
        decides="gain and error by code length: ordered best, PCA ahead of unordered when short",
        datasets=("cifar10",),
        runs=PAIR,
        several=True,
    ),
    Experiment(
        name="fid",
        figure="Fig. 4a",
        decides="FID by code length: ordered below unordered, little lost at 0.6 and 0.8",
        datasets=("cifar10", "celeba"),
        runs=(*PAIR, "original"),
        inception=True,
        several=True,
        counts=True,
    ),
    Experiment(
        name="objective",
        figure="Eq. 6",
        decides="the loss as printed, in sums, against each term's mean; two ways to select the epoch",
        datasets=("cifar10",),
        runs=("ordered", "means-by-reconstruction", "sums", "sums-by-reconstruction"),
        inception=True,
        several=True,
        counts=True,
    ),
    Experiment(
        name="speed",
        figure="Fig. 4b",
        decides="seconds by code length: linear, decoding small, faster than the baselines",
        datasets=("cifar10", "celeba"),
    ),
    Experiment(
        name="samples",
        figure="Fig. 5, Appendix G",
        decides="grids by code length: from coarse to fine, ordered against unordered",
        datasets=("mnist", "cifar10", "celeba"),
        runs=PAIR,
        counts=True,
    ),
    Experiment(
        name="priority-code",
        figure="Appendix F",
        decides="how much closer samples are that share their first code",
        datasets=("mnist", "cifar10", "celeba"),
        runs=PAIR,
        several=True,
        counts=True,
    ),
    Experiment(
        name="audio",
        figure="Appendix B",
        decides="sounds by code length: ordered ahead, low notes first, digits recognised, soon",
        datasets=("audiomnist", "vctk"),
        runs=(*PAIR, *BEST),
        counts=True,
        sound=True,
    ),
    Experiment(
        name="vae",
        figure="Appendix C.1",
        decides="gain and error by code length of VAEs: ordered regular and better when short",
        datasets=("cifar10",),
        runs=("ordered-vae", "standard-vae"),
        several=True,
        scale="short",
    ),
    Experiment(
        name="priors",
        figure="Appendix C.2",
        decides="Transformer, LSTM, PixelCNN on the same codes: PixelCNN behind, except at 0.2",
        datasets=("cifar10",),
        runs=("ordered", "lstm", "pixelcnn"),
        inception=True,
        several=True,
        counts=True,
        scale="short",
    ),
    Experiment(
        name="truncation",
        figure="Appendix C.3",
        decides="laws of truncation: Geo(0.03) marginally behind uniform, Geo(0.1) far when long",
        datasets=("cifar10",),
        runs=("ordered", "geometric-0.03", "geometric-0.1"),
        inception=True,
        several=True,
        counts=True,
        scale="short",
    ),
    Experiment(
        name="regularization",
        figure="Appendix C.4",
        decides="FID by number of training pictures: ordered ahead, the more so the fewer",
        datasets=("cifar10",),
        runs=(*PAIR, *(f"{kind}-{size}" for size in ("25k", "10k", "5k") for kind in PAIR)),
        inception=True,
        several=True,
        counts=True,
        scale="short",
    ),
    Experiment(
        name="tailored",
        figure="Appendix C.5",
        decides="one anytime model against one for each length: ahead, except when very short",
        datasets=("cifar10",),
        runs=(*PAIR, *(f"tailored-{fraction}" for fraction in (0.2, 0.4, 0.6, 0.8))),
        inception=True,
        several=True,
        counts=True,
        scale="short",
    ),
    Experiment(
        name="pca-prior",
        figure="Appendix D",
        decides="bits per dimension of principal components against pixels: 1.22 against 0.80",
        datasets=("mnist",),
        runs=("pixels", "pca"),
        several=True,
        scale="short",
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def find(name: str) -> Experiment:
    """The experiment of that name, or an error that suggests the nearest."""
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}: {nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
