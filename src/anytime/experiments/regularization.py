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
from anytime.experiments.fid_evaluator import ALIKE, Meter, label, plot, samples_of
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Workbench, digest
from anytime.experiments.statistics import Values, below, every, less, values
from anytime.experiments.tailored import whole
from anytime.experiments.variants import FEWER, with_fewer
from anytime.metrics.code_stats import bits_by_position, error_by_codes
from anytime.model import AnytimeModel
from anytime.training.run import used
from anytime.training.sample_grids import encoded

SIZES = (None, *reversed(FEWER))
"""Training pictures, None for all of them. Other experiments have those; then the smallest, which is the most telling."""
EXAMPLES = 10_000  # pictures behind errors and bits, at most


def compute(bench: Workbench) -> Results:
    """FID at full length, and errors and bits on training and held-out pictures, by kind and number of training pictures."""
    s, rows = bench.setting, list[Row]()
    meter, x = Meter(bench, samples_of(s)), s.dataset.held_out[:EXAMPLES]
    runs = [(with_fewer(kind, size), kind, seed) for seed in s.seeds for size in SIZES for kind in PAIR]
    bench.announce([(run, seed) for run, _, seed in runs], ("", "errors"), ALIKE)
    for run, kind, seed in runs:
        train = used(s.dataset, bench.plan(run, seed).config).pictures
        about = {"series": kind, "seed": seed, "pictures": len(train)}
        facts = {"x": digest(x), "train": digest(train[:EXAMPLES])}
        measure = partial(error_row, train=train[:EXAMPLES], x=x)
        rows += [{**about, **row} for row in bench.of_run(run, seed, facts, measure, part="errors")]
        rows += [{**row, **about} for row in whole(meter, run, seed)]
    rows.sort(key=lambda row: -row["pictures"])
    notes = [meter.note(), "the same epochs with fewer pictures", f"errors and bits of up to {EXAMPLES:,} pictures"]
    return bench.results(rows, decide(rows), notes)


def error_row(
    model: AnytimeModel, train: UInt8[Tensor, "m channel height width"], x: UInt8[Tensor, "n channel height width"]
) -> list[Row]:
    """Mean squared error from all codes and bits a code, of pictures trained on and held out."""
    row: Row = {}
    for part, pictures in (("training", train), ("held_out", x)):
        row[f"{part}_error"] = error_by_codes(model, pictures, [model.length])[0]
        row[f"{part}_bits"] = mean(bits_by_position(model.prior, encoded(model.autoencoder, pictures)))
    return [row]


def decide(rows: list[Row]) -> list[Verdict]:
    """Ordered ahead at every size, the more so the fewer pictures there are, in spite of a higher training error."""
    name, found = distance_name(rows), label(rows)
    sizes = sorted({row["pictures"] for row in rows}, reverse=True)
    both = {size: tuple(values(rows, kind, name, pictures=size) for kind in PAIR) for size in sizes}
    gains = {size: [b - a for a, b in zip(*both[size], strict=True)] for size in sizes}
    level = {size: mean(both[size][1]) for size in sizes}
    most, fewest = sizes[0], sizes[-1]

    def grows(larger: int, smaller: int) -> bool | None:
        return less(gains[larger], gains[smaller], level[smaller])

    texts = "; ".join(f"{size:,}: {mean(gains[size]):+.1f}" for size in sizes)
    first, then = (values(rows, kind, "training_error", pictures=most) for kind in PAIR)
    ahead = below({f"{most:,}": (both[most][0], both[most][1])})
    paper = "an increasingly larger improvement when the dataset becomes increasingly smaller"
    return [
        Verdict(
            f"{found}: ordered below unordered at full length with every number of training pictures",
            *below({f"{size:,}": (both[size][0], both[size][1]) for size in sizes}),
            "lower FID with full length codes under different numbers of training samples",
        ),
        Verdict(
            f"{found}: ordered gains more with {fewest:,} training pictures than with {most:,}",
            grows(most, fewest),
            texts,
            paper,
        ),
        Verdict(
            f"{found}: the gain grows with every step to fewer pictures",
            every([grows(larger, smaller) for larger, smaller in pairwise(sizes)]),
            texts,
            paper,
        ),
        Verdict(
            f"{found}: with {most:,} pictures ordered has the higher training error and yet the better samples",
            every([less(then, first), ahead[0]]),
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
    for kind, style in zip(PAIR, ("o-", "s-"), strict=True):
        own = sorted((row for row in results.rows if row["series"] == kind), key=lambda row: row["pictures"])
        plot(distances, own, kind, style, "pictures")
        for part, line in (("training", "-"), ("held_out", ":")):
            points = curve(own, kind, "pictures", f"{part}_error")
            colour, name = distances.lines[-1].get_color(), f"{kind}, {part.replace('_', ' ')}"
            errors.plot(list(points), list(points.values()), line, marker=".", color=colour, label=name)
    distances.set(ylabel=label(results.rows), title=results.dataset)
    errors.set(ylabel="mean squared error, all codes", ylim=(0, None))
    sizes = sorted({row["pictures"] for row in results.rows})
    for axes in (distances, errors):
        axes.set(xlabel="training pictures", xscale="log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.legend(fontsize="small")
    return write_figure(path, figure)
