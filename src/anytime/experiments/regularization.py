"""Appendix C.4: ordered against unordered codes at full length, with all training pictures and with fewer.

Every size is trained for the same epochs, so that fewer pictures mean fewer steps, for both kinds alike.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean

from jaxtyping import UInt8
from torch import Tensor

from anytime.core.results import Results, Row, Verdict, curve, read, write_figure
from anytime.evaluation.image_summary import distance_name
from anytime.experiments.fid_evaluator import FID_EXPERIMENTS, FIDEvaluator, label, plot, sample_count
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Runner, digest
from anytime.experiments.statistics import Values, all_below, all_hold, is_below, values
from anytime.experiments.tailored import full_length_rows
from anytime.experiments.variants import TRAIN_SIZES, with_examples
from anytime.metrics.code_stats import bits_by_position, error_by_codes
from anytime.model import AnytimeModel
from anytime.training.run import training_subset
from anytime.training.sample_grids import encode_dataset

SIZES = (None, *reversed(TRAIN_SIZES))
"""Training pictures, None for all of them. Other experiments have those; then the smallest, which is the most telling."""
EXAMPLES = 10_000  # pictures behind errors and bits, at most


def compute(runner: Runner) -> Results:
    """FID at full length, and errors and bits on training and held-out pictures, by kind and number of training pictures."""
    s, rows = runner.context, list[Row]()
    evaluator, x = FIDEvaluator(runner, sample_count(s)), s.dataset.held_out[:EXAMPLES]
    runs = [(with_examples(variant, size), variant, seed) for seed in s.seeds for size in SIZES for variant in PAIR]
    runner.announce([(run, seed) for run, _, seed in runs], ("", "errors"), FID_EXPERIMENTS)
    for run, variant, seed in runs:
        train = training_subset(s.dataset, runner.plan(run, seed).config).images
        about = {"series": variant, "seed": seed, "images": len(train)}
        facts = {"x": digest(x), "train": digest(train[:EXAMPLES])}
        measure = partial(error_row, train=train[:EXAMPLES], x=x)
        rows += [{**about, **row} for row in runner.measure_run(run, seed, facts, measure, part="errors")]
        rows += [{**row, **about} for row in full_length_rows(evaluator, run, seed)]
    rows.sort(key=lambda row: -row["images"])
    notes = [evaluator.note(), "the same epochs with fewer pictures", f"errors and bits of up to {EXAMPLES:,} pictures"]
    return runner.results(rows, decide(rows), notes)


def error_row(
    model: AnytimeModel, train: UInt8[Tensor, "m channel height width"], x: UInt8[Tensor, "n channel height width"]
) -> list[Row]:
    """Mean squared error from all codes and bits a code, of pictures trained on and held out."""
    row: Row = {}
    for part, images in (("training", train), ("held_out", x)):
        row[f"{part}_error"] = error_by_codes(model, images, [model.length])[0]
        row[f"{part}_bits"] = mean(bits_by_position(model.prior, encode_dataset(model.autoencoder, images)))
    return [row]


def decide(rows: list[Row]) -> list[Verdict]:
    """Ordered ahead at every size, the more so the fewer pictures there are, in spite of a higher training error."""
    name, found = distance_name(rows), label(rows)
    sizes = sorted({row["images"] for row in rows}, reverse=True)
    both = {size: tuple(values(rows, variant, name, images=size) for variant in PAIR) for size in sizes}
    gains = {size: [b - a for a, b in zip(*both[size], strict=True)] for size in sizes}
    level = {size: mean(both[size][1]) for size in sizes}
    most, smallest = sizes[0], sizes[-1]

    def grows(larger: int, smaller: int) -> bool | None:
        return is_below(gains[larger], gains[smaller], level[smaller])

    texts = "; ".join(f"{size:,}: {mean(gains[size]):+.1f}" for size in sizes)
    first, then = (values(rows, variant, "training_error", images=most) for variant in PAIR)
    ahead = all_below({f"{most:,}": (both[most][0], both[most][1])})
    paper = "an increasingly larger improvement when the dataset becomes increasingly smaller"
    return [
        Verdict(
            f"{found}: ordered below unordered at full length with every number of training pictures",
            *all_below({f"{size:,}": (both[size][0], both[size][1]) for size in sizes}),
            "lower FID with full length codes under different numbers of training samples",
        ),
        Verdict(
            f"{found}: ordered gains more with {smallest:,} training pictures than with {most:,}",
            grows(most, smallest),
            texts,
            paper,
        ),
        Verdict(
            f"{found}: the gain grows with every step to fewer pictures",
            all_hold([grows(larger, smaller) for larger, smaller in pairwise(sizes)]),
            texts,
            paper,
        ),
        Verdict(
            f"{found}: with {most:,} pictures ordered has the higher training error and yet the better samples",
            all_hold([is_below(then, first), ahead[0]]),
            f"training error {_text(first)} ordered, {_text(then)} unordered; {found} {ahead[1]}",
            "higher training error, yet a better FID",
        ),
    ]


def _text(numbers: Values) -> str:
    return ", ".join(f"{number:.5f}" for number in numbers)


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
    distances, errors = figure.subplots(1, 2)
    for variant, style in zip(PAIR, ("o-", "s-"), strict=True):
        own = sorted((row for row in results.rows if row["series"] == variant), key=lambda row: row["images"])
        plot(distances, own, variant, style, "images")
        for part, line in (("training", "-"), ("held_out", ":")):
            points = curve(own, variant, "images", f"{part}_error")
            colour, name = distances.lines[-1].get_color(), f"{variant}, {part.replace('_', ' ')}"
            errors.plot(list(points), list(points.values()), line, marker=".", color=colour, label=name)
    distances.set(ylabel=label(results.rows), title=results.dataset)
    errors.set(ylabel="mean squared error, all codes", ylim=(0, None))
    sizes = sorted({row["images"] for row in results.rows})
    for axes in (distances, errors):
        axes.set(xlabel="training pictures", xscale="log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.legend(fontsize="small")
    return write_figure(path, figure)
