"""Appendix C.4: ordered against unordered codes at full length, with all training images and with fewer.

Every size is trained for the same number of steps. So few images are seen often, and a prior can overfit them: only then can
order regularise. The prior's weights are those with the smallest validation loss, as in the paper, and beside them the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product
from statistics import mean
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.results import Results, Row, Verdict
from anytime.experiments.fid_evaluator import FIDEvaluator, fid_label, plot_fid
from anytime.experiments.plots import new_figure, plot_curve
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Checkpoint, RunMeasurement, Runner, digest
from anytime.experiments.statistics import Values, all_hold, is_below, spread, values, verdict_below
from anytime.experiments.variants import TRAIN_SIZES, with_examples
from anytime.metrics.code_stats import bits_by_position, encode_dataset
from anytime.metrics.quality import distance_name
from anytime.metrics.reconstruction import error_by_codes
from anytime.model import AnytimeModel
from anytime.training.run import training_subset

SIZES = (None, *reversed(TRAIN_SIZES))
"""Training images, None for all. The runs with all exist already; the smallest size, the most telling, comes next."""
EXAMPLES = 10_000  # images for errors and bits, at most
CHECKPOINTS: tuple[Checkpoint, ...] = ("best", "last")
FEWER = "an increasingly larger improvement when the dataset becomes increasingly smaller"
LOWER = "lower FID with full length codes under different numbers of training samples"


def series_name(variant: str, checkpoint: Checkpoint) -> str:
    """Return the series of a variant with one of its checkpoints.

    >>> series_name("ordered", "best"), series_name("ordered", "last")
    ('ordered', 'ordered, last')
    """
    return variant if checkpoint == "best" else f"{variant}, last"


def measure(runner: Runner) -> list[Row]:
    """Return FID at full length, and errors and bits on training and held-out images, by number of training images."""
    s, runs = runner.context, list[RunMeasurement]()
    evaluator, x = FIDEvaluator(runner), s.dataset.held_out[:EXAMPLES]
    runner.notes += ["the same steps for every number of images", f"errors and bits of up to {EXAMPLES:,} images"]
    for seed, size, variant, checkpoint in product(s.seeds, SIZES, PAIR, CHECKPOINTS):
        name = with_examples(variant, size)
        train = training_subset(s.dataset, runner.plan(name, seed).config).images
        few, labels = train[:EXAMPLES], {"series": series_name(variant, checkpoint), "seed": seed, "images": len(train)}
        work, facts = partial(error_row, train=few, x=x), {"x": digest(x), "train": digest(few)}
        runs += [
            RunMeasurement(name, seed, work, facts, checkpoint=checkpoint, part="errors", labels=labels),
            evaluator.measurement(name, seed, labels, full_length=True, checkpoint=checkpoint),
        ]
    rows = runner.measure_runs(runs)
    check_same_models(rows)
    return sorted(rows, key=lambda row: -row["images"])


def check_same_models(rows: Sequence[Row]) -> None:
    """Refuse errors and FID that are not of one training, as when a run was trained again on another machine."""
    found: dict[tuple[str, int, int], set[str]] = {}
    for row in rows:
        found.setdefault((row["series"], row["seed"], row["images"]), set()).add(row["model"])
    for (series, seed, images), models in found.items():
        if len(models) > 1:
            raise UserError(
                f"errors and FID of {series} of seed {seed} with {images:,} images are of different trainings; remove both "
                "measurements, and train and measure the run on one machine"
            )


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
    """Decide whether ordered is better at every size, the more so the fewer images, despite a higher training error.

    Whether the gain grows is decided only if the unordered prior overfits the fewest images.
    """
    overfits = _overfits(rows)
    verdicts = [overfits]
    for checkpoint in CHECKPOINTS:
        if _has(rows, checkpoint):
            verdicts += _gains(rows, checkpoint, overfits.holds is True)
    return [*verdicts, _training_error(rows)]


def _has(rows: list[Row], checkpoint: Checkpoint) -> bool:
    return any(row["series"] == series_name(PAIR[0], checkpoint) for row in rows)


def _sizes(rows: list[Row]) -> list[int]:
    return sorted({row["images"] for row in rows}, reverse=True)


def _overfits(rows: list[Row]) -> Verdict:
    """Decide whether more steps make the unordered prior worse on held-out images of the smallest size."""
    smallest = _sizes(rows)[-1]
    best, last = (values(rows, series_name(PAIR[1], c), "held_out_bits", images=smallest) for c in CHECKPOINTS)
    training = values(rows, series_name(PAIR[1], "last"), "training_bits", images=smallest)
    claim = f"the unordered prior overfits {smallest:,} training images: more held-out bits in the last epoch than in the best"
    if not last:
        return Verdict(
            claim, None, "rows of an earlier schedule: the same epochs for every size, and no last checkpoint", FEWER
        )
    text = f"bits per code, held out: {_text(best)} best, {_text(last)} last; training: {_text(training)} last"
    return Verdict(claim, all_hold([_rises(best, last), is_below(training, last)]), text, FEWER)


def _rises(best: Values, last: Values) -> bool | None:
    """Decide whether bits rise: by the spread over seeds, or with one seed by any margin, as both are of one training."""
    gap = mean(last) - mean(best)
    return gap > 0 if len(best) == 1 or abs(gap) > spread(best, last) else None


def _text(numbers: Values) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def _gains(rows: list[Row], checkpoint: Checkpoint, overfits: bool) -> list[Verdict]:
    """Decide by one checkpoint whether ordered is below unordered, and whether its lead grows with fewer images."""
    name, sizes = distance_name(rows), _sizes(rows)
    label = fid_label(rows) + (", last checkpoint" if checkpoint == "last" else "")
    ordered, unordered = (
        {size: values(rows, series_name(variant, checkpoint), name, images=size) for size in sizes} for variant in PAIR
    )
    gains = {size: [b - a for a, b in zip(ordered[size], unordered[size], strict=True)] for size in sizes}

    def grows(larger: int, smaller: int) -> bool | None:
        return is_below(gains[larger], gains[smaller], mean(unordered[smaller]))

    text = "; ".join(f"{size:,}: {mean(gains[size]):+.1f}" for size in sizes)
    text += "" if overfits else "; undecided because no prior is known to overfit"
    every_step = all_hold([grows(larger, smaller) for larger, smaller in pairwise(sizes)])
    most, smallest = sizes[0], sizes[-1]
    more = f"{label}: ordered gains more with {smallest:,} training images than with {most:,}"
    return [
        verdict_below(
            f"{label}: ordered below unordered at full length with every number of training images",
            LOWER,
            {f"{size:,}": (ordered[size], unordered[size]) for size in sizes},
        ),
        Verdict(more, grows(most, smallest) if overfits else None, text, FEWER),
        Verdict(f"{label}: the gain grows with every step to fewer images", every_step if overfits else None, text, FEWER),
    ]


def _training_error(rows: list[Row]) -> Verdict:
    name, label, most = distance_name(rows), fid_label(rows), _sizes(rows)[0]
    first, second = (values(rows, variant, "training_error", images=most) for variant in PAIR)
    errors = [", ".join(f"{number:.5f}" for number in numbers) for numbers in (first, second)]
    both = {f"{most:,}": tuple(values(rows, variant, name, images=most) for variant in PAIR)}
    better = verdict_below("", "", {size: (a, b) for size, (a, b) in both.items()})
    return Verdict(
        f"{label}: with {most:,} images ordered has the higher training error and still the better samples",
        all_hold([is_below(second, first), better.holds]),
        f"training error {errors[0]} ordered, {errors[1]} unordered; {label} {better.evidence}",
        "higher training error, yet a better FID",
    )


def draw(results: Results) -> Any:
    """Draw FID by number of training images, as the paper does, and beside it the bits that show overfitting."""
    figure = new_figure(9.0, 3.6)
    distances, bits = figure.subplots(1, 2)
    rows = sorted(results.rows, key=lambda row: row["images"])
    for variant, style in zip(PAIR, ("o-", "s-"), strict=True):
        plot_fid(distances, rows, variant, style, "images")
        options = {"marker": ".", "color": distances.lines[-1].get_color()}
        plot_curve(bits, rows, variant, "images", "training_bits", "-", f"{variant}, training", **options)
        plot_curve(bits, rows, variant, "images", "held_out_bits", ":", f"{variant}, held out", **options)
        if _has(rows, "last"):
            last = series_name(variant, "last")
            plot_curve(distances, rows, last, "images", distance_name(rows), "--", **options)
            plot_curve(bits, rows, last, "images", "held_out_bits", "--", f"{last}, held out", **options)
    distances.set(ylabel=fid_label(rows), title=results.dataset)
    bits.set(ylabel="bits per code", ylim=(0, None))
    sizes = sorted({row["images"] for row in rows})
    for axes in (distances, bits):
        axes.set(xlabel="training images", xscale="log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.legend(fontsize="x-small")
    return figure
