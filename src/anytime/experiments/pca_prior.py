"""Appendix D: a Transformer over principal components against one over pixels, in bits per dimension and by their samples.

Both model the same dequantised bytes with the same network. The components are a rotation of them, which keeps volume.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from statistics import mean
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.baselines.density import DensityModel, held_out_bits_per_dim
from anytime.core.random import derive
from anytime.core.results import Results, Row, Verdict, curve, select
from anytime.data.loader import to_float
from anytime.evaluation.classifier_training import load_or_train_image_classifier
from anytime.experiments.plots import encode_strip, new_figure, plot_curve, show_strip
from anytime.experiments.runner import Runner, digest
from anytime.experiments.statistics import values, verdict_below
from anytime.metrics.classifier import CONFIDENCE, ClassifierConfig
from anytime.metrics.feature_stats import CHUNK, FeatureSource, FeatureStatistics, compute_statistics
from anytime.metrics.features import FeatureNetwork, RandomNetwork
from anytime.metrics.quality import quality_row, reference_statistics
from anytime.training import log
from anytime.training.run_dir import RunPaths

SPACES = ("pixels", "pca")
PAPER = {"pixels": 0.80, "pca": 1.22}
HALF_PAPER_GAP = 0.21  # bits: half of the paper's difference
EXAMPLES, SMOKE_EXAMPLES = 10_000, 32  # held-out images for the bits, at most
TRAINING_EXAMPLES = 2000  # training images for the bits, at most: enough for three digits
SAMPLES, SMOKE_SAMPLES = 2000, 32
SHOWN, COLUMNS = 16, 8  # samples in the figure
TRAINING = "training images"
DISTANCES = ("frechet_classifier", "frechet_random")
Images = UInt8[Tensor, "_ channel height width"]


@dataclass(frozen=True)
class SampleQuality:
    """Compares samples with held-out images on the features of a network."""

    runner: Runner
    network: FeatureNetwork
    count: int

    @cached_property
    def real(self) -> FeatureStatistics:
        """The statistics of the held-out images."""
        s = self.runner.context
        return reference_statistics(s.dataset.held_out, self.network, None, s.reporter, label="held-out")

    def model_row(self, model: DensityModel, seed: int) -> Row:
        """Return the quality of samples of a model."""

        def chunk(first: int, last: int) -> list[Tensor]:
            return [model.sample(last - first, derive(seed, "evaluation", first // CHUNK))]

        source = FeatureSource("samples", {"seed": seed}, self.count, 1, chunk)
        (found,) = compute_statistics(source, self.network, None, self.runner.context.reporter)
        return {"part": "samples", **quality_row(found, self.real, self.network)}

    def data_row(self) -> Row:
        """Return the quality of as many training images, for reference."""
        x = self.runner.context.dataset.images[: self.count]
        (found,) = compute_statistics(FeatureSource("training", {}, len(x), 1, lambda a, b: [x[a:b]]), self.network)
        return {"series": TRAINING, "part": "samples", **quality_row(found, self.real, self.network)}


def measure(runner: Runner) -> list[Row]:
    """Return bits per dimension in both spaces, of held-out and training images and by epoch, and the quality of samples."""
    s = runner.context
    count = SMOKE_EXAMPLES if s.smoke else EXAMPLES
    x, train = s.dataset.held_out[:count], s.dataset.images[: min(count, TRAINING_EXAMPLES)]
    runner.notes.append(f"bits of {len(x):,} held-out images, dequantised once")
    facts: dict[str, Any] = {"x": digest(x), "train": digest(train), "shown": SHOWN}
    quality = _sample_quality(runner)
    if quality is not None:
        facts |= {"network": quality.network.digest, "samples": quality.count}
        runner.notes.append(f"{quality.count:,} samples against {len(s.dataset.held_out):,} held-out images")
    # The reference first: it is then measured wherever a run is.
    reference = [] if quality is None else runner.measure_data(TRAINING, facts, lambda: [quality.data_row()])
    measured = runner.measure_series({space: space for space in SPACES}, partial(model_rows, runner, x, train, quality), facts)
    return measured + reference


def _sample_quality(runner: Runner) -> SampleQuality | None:
    """Return how samples are compared: by the dataset's classifier, at smoke scale by a random network; None without labels."""
    s = runner.context
    count = s.samples or (SMOKE_SAMPLES if s.smoke else SAMPLES)
    if s.smoke:
        return SampleQuality(runner, RandomNetwork(s.device), count)
    if s.labels is None or s.dataset.test is None:
        return None
    config, may_train = ClassifierConfig(), not s.cached
    classifier = load_or_train_image_classifier(s.dataset, s.labels, config, s.device, s.reporter, train=may_train)
    return SampleQuality(runner, classifier, count)


def model_rows(
    runner: Runner, x: Images, train: Images, quality: SampleQuality | None, model: DensityModel, seed: int
) -> list[Row]:
    """Return the bits of one run, its validation bits by epoch, the quality of its samples and some of them."""
    run_dir = runner.plan(model.config.space, seed).run_dir
    weights = sum(parameter.numel() for parameter in model.parameters())
    rows: list[Row] = [
        {"part": part, "bits": held_out_bits_per_dim(model, own, seed), "examples": len(own), "weights": weights}
        for part, own in {"held out": x, "training": train}.items()
    ]
    by_epoch = {line["epoch"]: line["validation"]["loss"] for line in log.read(RunPaths(run_dir).metrics)}
    rows += [{"epoch": epoch, "validation_bits": bits} for epoch, bits in by_epoch.items()]
    rows += [] if quality is None else [quality.model_row(model, seed)]
    with torch.no_grad():
        return [*rows, {"png": encode_strip(to_float(model.sample(SHOWN, seed)).cpu(), COLUMNS)}]


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide whether principal components cost more bits, how many more, and whether their samples are worse.

    The paper's numbers are decided too: a difference says little if one of the models is far from the paper's.
    """
    pixels, components = (values(rows, space, "bits", part="held out") for space in SPACES)
    paper = f"{PAPER['pca']:.2f} bits/dim in PCA space against {PAPER['pixels']:.2f} on pixels"
    bits = {"bits per dimension": (pixels, components)}
    fewer = verdict_below("pixels cost fewer bits per dimension than principal components", paper, bits, digits=3)
    by_half = verdict_below("", paper, {"": ([number + HALF_PAPER_GAP for number in pixels], components)})
    claim = f"the difference is at least {HALF_PAPER_GAP} bits, half of the paper's"
    as_low = [
        verdict_below(
            f"{name} cost no more bits than the paper's model", paper,
            {"bits per dimension": (own, [PAPER[space]] * len(own))}, digits=3,
        )
        for space, name, own in (("pixels", "pixels", pixels), ("pca", "principal components", components))
    ]  # fmt: skip
    converged = Verdict(fewer.claim, fewer.holds, f"{fewer.evidence}; {_last_epoch(rows)}", paper)
    return [converged, Verdict(claim, by_half.holds, fewer.evidence, paper), *as_low, *_sample_verdicts(rows)]


def _last_epoch(rows: list[Row]) -> str:
    """Say how much the last epoch changed the validation bits: whether the models have converged."""
    changes = []
    for space in SPACES:
        by_epoch = list(curve(rows, space, "epoch", "validation_bits").values())
        changes.append(f"{by_epoch[-1] - by_epoch[-2]:+.3f} {space}" if len(by_epoch) > 1 else f"one epoch {space}")
    return f"validation bits in the last epoch: {', '.join(changes)}"


def _sample_verdicts(rows: list[Row]) -> list[Verdict]:
    """Decide by the Fréchet distance; results measured without samples have no verdict on them."""
    name = next((name for name in DISTANCES if any(name in row for row in rows)), None)
    if name is None:
        return []
    pixels, components = (values(rows, space, name, part="samples") for space in SPACES)
    claim = f"{name}: samples of pixels below those of principal components"
    verdict = verdict_below(claim, "inferior sample quality in PCA space", {name: (pixels, components)}, digits=2)
    shares = [values(rows, space, "classified", part="samples") for space in SPACES]
    if all(shares):
        shown = " against ".join(f"{mean(share):.1%}" for share in shares)
        evidence = f"{verdict.evidence}; classified with a confidence above {CONFIDENCE}: {shown}"
        verdict = Verdict(verdict.claim, verdict.holds, evidence, verdict.paper)
    return [verdict]


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
