"""Appendix C.4: ordered against unordered codes at full length, with all training images and with fewer.

Every size is trained for the same epochs: fewer images mean fewer steps, for ordered and unordered alike.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise, product
from statistics import mean
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from anytime.core.results import Results, Row, Verdict
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_label, plot_fid
from anytime.experiments.plots import new_figure, plot_curve
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import RunMeasurement, Runner, digest
from anytime.experiments.statistics import all_hold, is_below, values, verdict_below
from anytime.experiments.variants import TRAIN_SIZES, with_examples
from anytime.metrics.code_stats import bits_by_position, encode_dataset
from anytime.metrics.quality import distance_name
from anytime.metrics.reconstruction import error_by_codes
from anytime.model import AnytimeModel
from anytime.training.run import training_subset

SIZES = (None, *reversed(TRAIN_SIZES))
"""Training images, None for all. The runs with all exist already; the smallest size, the most telling, comes next."""
EXAMPLES = 10_000  # images for errors and bits, at most


def measure(runner: Runner) -> list[Row]:
    """Return FID at full length, and errors and bits on training and held-out images, by number of training images."""
    s, runs = runner.context, list[RunMeasurement]()
    evaluator, x = FIDEvaluator(runner), s.dataset.held_out[:EXAMPLES]
    runner.notes += ["the same epochs with fewer images", f"errors and bits of up to {EXAMPLES:,} images"]
    for seed, size, series in product(s.seeds, SIZES, PAIR):
        variant = with_examples(series, size)
        train = training_subset(s.dataset, runner.plan(variant, seed).config).images
        labels, few = {"series": series, "seed": seed, "images": len(train)}, train[:EXAMPLES]
        facts = {"x": digest(x), "train": digest(few)}
        errors = RunMeasurement(variant, seed, partial(error_row, train=few, x=x), facts, part="errors", labels=labels)
        runs += [errors, evaluator.measurement(variant, seed, labels, full_length=True)]
    return sorted(runner.measure_runs(runs), key=lambda row: -row["images"])


def error_row(
    model: AnytimeModel, train: UInt8[Tensor, "m channel height width"], x: UInt8[Tensor, "n channel height width"]
) -> list[Row]:
    """Return the error from all codes and the bits per code, of training and held-out images."""
    row: Row = {}
    for part, images in (("training", train), ("held_out", x)):
        row[f"{part}_error"] = error_by_codes(model, images, [model.length])[0]
        row[f"{part}_bits"] = mean(bits_by_position(model.prior, encode_dataset(model.autoencoder, images)))
    return [row]


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide whether ordered is better at every size, the more so the fewer images, despite a higher training error."""
    name, label = distance_name(rows), fid_label(rows)
    sizes = sorted({row["images"] for row in rows}, reverse=True)
    ordered, unordered = ({size: values(rows, series, name, images=size) for size in sizes} for series in PAIR)
    gains = {size: [b - a for a, b in zip(ordered[size], unordered[size], strict=True)] for size in sizes}
    most, smallest = sizes[0], sizes[-1]

    def grows(larger: int, smaller: int) -> bool | None:
        return is_below(gains[larger], gains[smaller], mean(unordered[smaller]))

    texts = "; ".join(f"{size:,}: {mean(gains[size]):+.1f}" for size in sizes)
    first, second = (values(rows, series, "training_error", images=most) for series in PAIR)
    errors = [", ".join(f"{number:.5f}" for number in numbers) for numbers in (first, second)]
    better = verdict_below("", "", {f"{most:,}": (ordered[most], unordered[most])})
    claim = f"{label}: ordered gains more with {smallest:,} training images than with {most:,}"
    every_step = all_hold([grows(larger, smaller) for larger, smaller in pairwise(sizes)])
    paper = "an increasingly larger improvement when the dataset becomes increasingly smaller"
    return [
        verdict_below(
            f"{label}: ordered below unordered at full length with every number of training images",
            "lower FID with full length codes under different numbers of training samples",
            {f"{size:,}": (ordered[size], unordered[size]) for size in sizes},
        ),
        Verdict(claim, grows(most, smallest), texts, paper),
        Verdict(f"{label}: the gain grows with every step to fewer images", every_step, texts, paper),
        Verdict(
            f"{label}: with {most:,} images ordered has the higher training error and still the better samples",
            all_hold([is_below(second, first), better.holds]),
            f"training error {errors[0]} ordered, {errors[1]} unordered; {label} {better.evidence}",
            "higher training error, yet a better FID",
        ),
    ]


def draw(results: Results) -> Any:
    """Draw FID and errors by number of training images."""
    figure = new_figure(9.0, 3.6)
    distances, errors = figure.subplots(1, 2)
    rows = sorted(results.rows, key=lambda row: row["images"])
    for series, style in zip(PAIR, ("o-", "s-"), strict=True):
        plot_fid(distances, rows, series, style, "images")
        for part, line in (("training", "-"), ("held_out", ":")):
            options = {"marker": ".", "color": distances.lines[-1].get_color()}
            plot_curve(errors, rows, series, "images", f"{part}_error", line, f"{series}, {part.replace('_', ' ')}", **options)
    distances.set(ylabel=fid_label(rows), title=results.dataset)
    errors.set(ylabel="mean squared error, all codes", ylim=(0, None))
    sizes = sorted({row["images"] for row in rows})
    for axes in (distances, errors):
        axes.set(xlabel="training images", xscale="log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.legend(fontsize="small")
    return figure
