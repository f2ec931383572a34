"""Appendix D: a Transformer over principal components against one over pixels, in bits per dimension.

Both model the same dequantised bytes with the same network. The components are a rotation of them, which keeps volume.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from anytime.baselines.density import DensityModel, held_out_bits_per_dim
from anytime.core.results import Results, Row, Verdict, curve, select
from anytime.data.loader import to_float
from anytime.experiments.plots import encode_strip, new_figure, plot_curve, show_strip
from anytime.experiments.runner import Runner, digest
from anytime.experiments.statistics import values, verdict_below
from anytime.training import log
from anytime.training.run_dir import RunPaths

SPACES = ("pixels", "pca")
PAPER = {"pixels": 0.80, "pca": 1.22}
HALF_PAPER_GAP = 0.21  # bits: half of the paper's difference
EXAMPLES, SMOKE_EXAMPLES = 10_000, 32  # images for the bits, at most
SHOWN, COLUMNS = 16, 8  # samples in the figure
Images = UInt8[Tensor, "_ channel height width"]


def measure(runner: Runner) -> list[Row]:
    """Return bits per dimension in both spaces, of held-out and training images and by epoch, and samples."""
    s = runner.context
    count = SMOKE_EXAMPLES if s.smoke else EXAMPLES
    x, train = s.dataset.held_out[:count], s.dataset.images[:count]
    runner.notes.append(f"bits of {len(x):,} held-out images, dequantised once")
    facts, work = {"x": digest(x), "train": digest(train), "shown": SHOWN}, partial(model_rows, runner, x, train)
    return runner.measure_series({space: space for space in SPACES}, work, facts)


def model_rows(runner: Runner, x: Images, train: Images, model: DensityModel, seed: int) -> list[Row]:
    """Return the bits of one run, its validation bits by epoch, and samples."""
    run_dir = runner.plan(model.config.space, seed).run_dir
    weights = sum(parameter.numel() for parameter in model.parameters())
    rows: list[Row] = [
        {"part": part, "bits": held_out_bits_per_dim(model, own, seed), "examples": len(own), "weights": weights}
        for part, own in {"held out": x, "training": train}.items()
    ]
    by_epoch = {line["epoch"]: line["validation"]["loss"] for line in log.read(RunPaths(run_dir).metrics)}
    rows += [{"epoch": epoch, "validation_bits": bits} for epoch, bits in by_epoch.items()]
    return [*rows, {"png": encode_strip(to_float(model.sample(SHOWN, seed)).cpu(), COLUMNS)}]


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide whether principal components cost more bits, and how many more."""
    pixels, components = (values(rows, space, "bits", part="held out") for space in SPACES)
    paper = f"{PAPER['pca']:.2f} bits/dim in PCA space against {PAPER['pixels']:.2f} on pixels"
    bits = {"bits per dimension": (pixels, components)}
    fewer = verdict_below("pixels cost fewer bits per dimension than principal components", paper, bits, digits=3)
    by_half = verdict_below("", paper, {"": ([number + HALF_PAPER_GAP for number in pixels], components)})
    claim = f"the difference is at least {HALF_PAPER_GAP} bits, half of the paper's"
    return [fewer, Verdict(claim, by_half.holds, fewer.evidence, paper)]


def draw(results: Results) -> Any:
    """Draw bits by epoch, and samples."""
    figure = new_figure(11.0, 3.6)
    axes, *images = figure.subplots(1, 1 + len(SPACES))
    for space, image in zip(SPACES, images, strict=True):
        plot_curve(axes, results.rows, space, "epoch", "validation_bits", label=f"{space}, validation", marker=".")
        held_out = curve(results.rows, space, "part", "bits")["held out"]
        axes.axhline(held_out, color=axes.lines[-1].get_color(), linestyle=":", label=f"{space}, held out {held_out:.2f}")
        png = next(row["png"] for row in select(results.rows, series=space) if "png" in row)
        show_strip(image, png, f"samples, {space}")
    axes.set(xlabel="epoch", ylabel="bits per dimension", title=results.dataset)
    axes.legend(fontsize="small")
    return figure
