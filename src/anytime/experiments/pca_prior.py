"""Appendix D: a Transformer over principal components against one over pixels, in bits per dimension.

Both model the same dequantised bytes with the same network; the components are an orthogonal turn of them, which keeps volume.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from anytime.baselines.density import DensityModel
from anytime.core.results import Results, Row, Verdict, curve, read, write_figure
from anytime.data.loader import to_float
from anytime.experiments.image_strips import show, strip
from anytime.experiments.runner import Runner, digest
from anytime.experiments.statistics import all_below, values
from anytime.metrics.likelihood import bits_per_dim
from anytime.training import log
from anytime.training.run_dir import RunPaths

SPACES = ("pixels", "pca")
PAPER = {"pixels": 0.80, "pca": 1.22}
HALF_PAPER_GAP = 0.21  # of a bit: half of the paper's difference
EXAMPLES, SMOKE_EXAMPLES = 10_000, 32  # pictures behind the bits, at most
SHOWN, COLUMNS = 16, 8  # samples in the figure


def compute(runner: Runner) -> Results:
    """Bits per dimension in both spaces, of held-out and of training pictures, by epoch, and a few samples."""
    s, rows = runner.context, list[Row]()
    count = SMOKE_EXAMPLES if s.smoke else EXAMPLES
    x, train = s.dataset.held_out[:count], s.dataset.images[:count]
    runner.announce([(space, seed) for seed in s.seeds for space in SPACES])
    facts = {"x": digest(x), "train": digest(train), "shown": SHOWN}
    for seed in s.seeds:
        for space in SPACES:
            run_dir = runner.plan(space, seed).run_dir
            rows += runner.measure_density(space, seed, facts, partial(model_rows, space, seed, run_dir, x=x, train=train))
    return runner.results(rows, decide(rows), [f"bits of {len(x):,} held-out pictures, dequantised once"])


def model_rows(
    space: str,
    seed: int,
    run_dir: Path,
    model: DensityModel,
    x: UInt8[Tensor, "n channel height width"],
    train: UInt8[Tensor, "m channel height width"],
) -> list[Row]:
    """The numbers of one run, its validation bits by epoch as its log has them, and samples."""
    shared = {"series": space, "seed": seed}
    weights = sum(parameter.numel() for parameter in model.parameters())
    parts = {"held out": x, "training": train}
    return [
        *(
            {**shared, "part": part, "bits": bits_per_dim(model, own, seed), "examples": len(own), "weights": weights}
            for part, own in parts.items()
        ),
        *(
            {**shared, "epoch": line["epoch"], "validation_bits": line["validation"]["loss"]}
            for line in log.read(RunPaths(run_dir).metrics)
        ),
        {**shared, "png": strip(to_float(model.sample(SHOWN, seed)).cpu(), COLUMNS)},
    ]


def decide(rows: list[Row]) -> list[Verdict]:
    """Whether principal components cost more bits, and whether as many more as in the paper."""
    pixels, components = (values(rows, space, "bits", part="held out") for space in SPACES)
    shifted = [number + HALF_PAPER_GAP for number in pixels]
    holds, text = all_below({"bits per dimension": (pixels, components)}, digits=3)
    by_half, _ = all_below({"": (shifted, components)}, digits=3)
    paper = f"{PAPER['pca']:.2f} bits/dim in PCA space against {PAPER['pixels']:.2f} on pixels"
    return [
        Verdict("pixels cost fewer bits per dimension than principal components", holds, text, paper),
        Verdict(f"the difference is at least {HALF_PAPER_GAP} bits, half of the paper's", by_half, text, paper),
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers and pictures alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(11, 3.6), layout="constrained")
    axes, *images = figure.subplots(1, 1 + len(SPACES))
    for space, image in zip(SPACES, images, strict=True):
        by_epoch = curve(results.rows, space, "epoch", "validation_bits")
        axes.plot(list(by_epoch), list(by_epoch.values()), marker=".", label=f"{space}, validation")
        held_out = curve(results.rows, space, "part", "bits")["held out"]
        axes.axhline(held_out, color=axes.lines[-1].get_color(), linestyle=":", label=f"{space}, held out {held_out:.2f}")
        show(image, next(row["png"] for row in results.rows if row["series"] == space and "png" in row), f"samples, {space}")
    axes.set(xlabel="epoch", ylabel="bits per dimension", title=results.dataset)
    axes.legend(fontsize="small")
    return write_figure(path, figure)
