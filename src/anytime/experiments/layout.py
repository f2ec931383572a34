"""Fig. 2: a quarter of the codes, channel-wise against spatial-wise, of two models that differ in nothing else.

The number is the reconstruction error of each row of pixels. Rows differ in how much there is to know (MNIST's outermost are
black), so the verdicts compare shares: the error in a part of the picture over that of the mean training picture there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anytime.core.results import Results, Row, Verdict, read, write_figure
from anytime.data import Dataset
from anytime.data.loader import to_float
from anytime.data.registry import DATASETS
from anytime.experiments.image_strips import show, strip
from anytime.experiments.runner import Runner, digest
from anytime.metrics.reconstruction import BATCH, error_by_row
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

QUARTER = 0.25
LAYOUTS = {"channel": "ordered", "spatial": "spatial"}
"""Each layout and the kind of run that has it: channel-wise is the paper's own."""
SHOWN_IMAGES = 8  # of each kind in the figure
DERIVED_FROM_DATA = ("data", "reconstructions")
MEAN_IMAGE = "mean image"
REGIONS = {"whole": (0.0, 1.0), "top quarter": (0.0, 0.25), "bottom half": (0.5, 1.0)}
"""Parts of the picture, from and to which share of its height."""
MAX_RATIO_TO_WHOLE, MIN_UNEXPLAINED, MAX_UNEXPLAINED, MAX_RATIO_TO_SPATIAL = 1.25, 0.95, 0.5, 0.5
"""Bounds of the verdicts, set before any model was trained."""


def compute(runner: Runner) -> Results:
    """Held-out error by row of pixels at a quarter of the codes and at all of them, and a few pictures from a quarter."""
    s = runner.context
    x = s.dataset.held_out
    baseline = mean_image_errors(s.dataset)
    rows = _by_row({"series": MEAN_IMAGE}, baseline)
    rows.append({"series": "data", "content": "data", "png": strip(to_float(x[:SHOWN_IMAGES]))})
    for layout, variant in LAYOUTS.items():
        measure = partial(model_rows, layout, s.seed, x=x, baseline=baseline)
        rows += runner.measure_run(variant, s.seed, {"x": digest(x)}, measure)
    rows = without_data(rows, s.dataset.name)
    return runner.results(rows, decide(rows), [f"errors of {len(x):,} held-out pictures"])


def without_data(rows: list[Row], name: str) -> list[Row]:
    """The rows that may be passed on: of some sets no pictures, nor what is made from their codes.

    >>> len(without_data([{"content": "data"}, {"content": "samples"}, {"row": 0}], "celeba"))
    2
    """
    return rows if DATASETS[name].redistributable else [row for row in rows if row.get("content") not in DERIVED_FROM_DATA]


def mean_image_errors(dataset: Dataset) -> list[float]:
    """Held-out error of the mean training picture, by row of pixels."""
    parts = dataset.images.split(BATCH)  # in parts: a set of bytes is eight times larger as float64
    mean = torch.stack([to_float(part).double().sum(0) for part in parts]).sum(0) / len(dataset.train)
    errors = [(to_float(part).double() - mean).square().sum((0, 1, 3)) for part in dataset.held_out.split(BATCH)]
    return (torch.stack(errors).sum(0) * dataset.shape[1] / dataset.held_out.numel()).tolist()


def model_rows(layout: str, seed: int, model: AnytimeModel, x: Tensor, baseline: list[float]) -> list[Row]:
    """Errors by row of pixels, shares by region and pictures of one run."""
    rows: list[Row] = []
    for fraction in (QUARTER, 1.0):
        count = code_count(model.length, fraction=fraction)
        shared = {"series": layout, "fraction": fraction, "codes": count, "length": model.length, "seed": seed}
        errors = error_by_row(model, x, count)
        rows += _by_row(shared, errors)
        if fraction == QUARTER:
            rows += [{**shared, "region": name, "unexplained": share} for name, share in unexplained(errors, baseline).items()]
    count = code_count(model.length, fraction=QUARTER)
    images = {
        "reconstructions": model.decode(model.encode(to_float(x[:SHOWN_IMAGES]))[:, :count]),
        "samples": model.sample(SHOWN_IMAGES, seed=0, codes=count).data,
    }
    return rows + [{"series": layout, "content": content, "png": strip(made)} for content, made in images.items()]


def _by_row(shared: Row, errors: list[float]) -> list[Row]:
    return [{**shared, "row": number, "error": error} for number, error in enumerate(errors)]


def unexplained(errors: list[float], baseline: list[float]) -> dict[str, float]:
    """Error over the yardstick's, in each region.

    >>> unexplained([1.0, 1.0, 3.0, 1.0], [4.0, 4.0, 4.0, 4.0])
    {'whole': 0.375, 'top quarter': 0.25, 'bottom half': 0.5}
    """
    shares = {}
    for name, (start, stop) in REGIONS.items():
        own = slice(round(start * len(errors)), round(stop * len(errors)))
        shares[name] = sum(errors[own]) / sum(baseline[own])
    return shares


def decide(rows: list[Row]) -> list[Verdict]:
    """Whole pictures or top rows only, by the share of each region that a quarter of the codes leaves unexplained."""
    share = {(row["series"], row["region"]): row["unexplained"] for row in rows if "region" in row}
    channel, spatial = ({region: share[layout, region] for region in REGIONS} for layout in LAYOUTS)
    ratio = channel["bottom half"] / spatial["bottom half"]
    return [
        Verdict(
            f"channel-wise: the bottom half is known as well as the whole "
            f"(at most {MAX_RATIO_TO_WHOLE} times its share is unexplained)",
            channel["bottom half"] <= MAX_RATIO_TO_WHOLE * channel["whole"],
            f"{channel['bottom half']:.3f} against {channel['whole']:.3f}",
            "channel-wise, a quarter of the code gives whole images",
        ),
        Verdict(
            f"spatial-wise: nothing is known of the bottom half (error at least {MIN_UNEXPLAINED} of the mean picture's)",
            spatial["bottom half"] >= MIN_UNEXPLAINED,
            f"{spatial['bottom half']:.3f}",
            "spatial-wise, a quarter of the code reconstructs only the top rows",
        ),
        Verdict(
            f"spatial-wise: the top quarter is known (at most {MAX_UNEXPLAINED} unexplained)",
            spatial["top quarter"] <= MAX_UNEXPLAINED,
            f"{spatial['top quarter']:.3f}",
            "spatial-wise, a quarter of the code reconstructs only the top rows",
        ),
        Verdict(
            f"in the bottom half the channel-wise error is at most {MAX_RATIO_TO_SPATIAL} of the spatial-wise one",
            ratio <= MAX_RATIO_TO_SPATIAL,
            f"{ratio:.3f}",
            "early spatial-wise codes cannot capture the global information",
        ),
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(11, 4.2), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=(1, 1.4))
    left, right = halves
    axes = left.subplots()
    for (name, fraction), style in _curves(results.rows).items():
        own = [row for row in results.rows if "row" in row and (row["series"], row.get("fraction")) == (name, fraction)]
        label = name if fraction is None else f"{name}, {fraction:.0%} of codes"
        axes.plot([row["error"] for row in own], [row["row"] for row in own], style, label=label)
    axes.invert_yaxis()
    axes.set(xlabel="mean squared error", ylabel="row of pixels", title=results.dataset, xlim=(0, None))
    left.legend(loc="outside lower center", ncols=2, fontsize="small")
    strips = [row for row in results.rows if "png" in row]
    for axis, row in zip(right.subplots(len(strips), 1), strips, strict=True):
        title = "data" if row["content"] == "data" else f"{row['series']}-wise {row['content']}, a quarter of the codes"
        show(axis, row["png"], title)
    return write_figure(path, figure)


def _curves(rows: list[Row]) -> dict[tuple[str, float | None], str]:
    """Each curve and its style: one colour per layout, dotted at full length, grey for the yardstick."""
    keys = dict.fromkeys((row["series"], row.get("fraction")) for row in rows if "row" in row)
    colours = dict(zip(LAYOUTS, ("C0", "C1"), strict=True))
    return {key: (":k" if key[1] is None else colours[key[0]] + ("-" if key[1] == QUARTER else ":")) for key in keys}
