"""Fig. 2: a quarter of the codes, channel-wise against spatial-wise, of two models that differ in nothing else.

The measure is the reconstruction error of each row of pixels. Rows differ in content (MNIST's outermost are black).
So the verdicts compare ratios: the error in a region over the error of the mean training image there.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from anytime.core.results import Results, Row, Verdict
from anytime.data import Dataset
from anytime.data.loader import to_float
from anytime.data.registry import DATASETS
from anytime.experiments.plots import encode_strip, new_figure, show_strip
from anytime.experiments.runner import Runner, digest
from anytime.metrics.reconstruction import BATCH, error_by_row
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

QUARTER = 0.25
LAYOUTS = {"channel": "ordered", "spatial": "spatial"}
"""Layout -> variant; channel-wise is the paper's own."""
SHOWN_IMAGES = 8
MEAN_IMAGE = "mean image"
REGIONS = {"whole": (0.0, 1.0), "top quarter": (0.0, 0.25), "bottom half": (0.5, 1.0)}
"""Regions of the image, as fractions of its height."""
MAX_RATIO_TO_WHOLE, MIN_UNEXPLAINED, MAX_UNEXPLAINED, MAX_RATIO_TO_SPATIAL = 1.25, 0.95, 0.5, 0.5
"""Bounds of the verdicts, set before any model was trained."""


def measure(runner: Runner) -> list[Row]:
    """Return the held-out error by row of pixels at a quarter and all of the codes, and images from a quarter."""
    s, x = runner.context, runner.context.dataset.held_out
    runner.notes.append(f"errors of {len(x):,} held-out images")
    baseline = mean_image_errors(s.dataset)
    rows = _by_row(baseline, series=MEAN_IMAGE)
    rows.append({"series": "data", "content": "data", "png": encode_strip(to_float(x[:SHOWN_IMAGES]))})
    rows += runner.measure_series(LAYOUTS, lambda model, seed: model_rows(model, x, baseline), {"x": digest(x)})
    return without_data(rows, s.dataset.name)


def without_data(rows: list[Row], name: str) -> list[Row]:
    """Drop images of a dataset that may not be redistributed, and what is decoded from their codes.

    >>> len(without_data([{"content": "data"}, {"content": "samples"}, {"row": 0}], "celeba"))
    2
    """
    withheld = () if DATASETS[name].redistributable else ("data", "reconstructions")
    return [row for row in rows if row.get("content") not in withheld]


def mean_image_errors(dataset: Dataset) -> list[float]:
    """Return the held-out error of the mean training image, by row of pixels."""
    parts = dataset.images.split(BATCH)  # in parts: as float64 the images take eight times their memory
    mean = torch.stack([to_float(part).double().sum(0) for part in parts]).sum(0) / len(dataset.train)
    errors = [(to_float(part).double() - mean).square().sum((0, 1, 3)) for part in dataset.held_out.split(BATCH)]
    return (torch.stack(errors).sum(0) * dataset.shape[1] / dataset.held_out.numel()).tolist()


def model_rows(model: AnytimeModel, x: Tensor, baseline: list[float]) -> list[Row]:
    """Return errors by row of pixels, ratios by region, and images of one run."""
    count = code_count(model.length, fraction=QUARTER)
    errors, quarter = error_by_row(model, x, count), {"fraction": QUARTER, "codes": count, "length": model.length}
    rows = _by_row(errors, **quarter)
    rows += [{**quarter, "region": name, "unexplained": ratio} for name, ratio in unexplained(errors, baseline).items()]
    rows += _by_row(error_by_row(model, x, model.length), fraction=1.0, codes=model.length, length=model.length)
    images = {
        "reconstructions": model.decode(model.encode(to_float(x[:SHOWN_IMAGES]))[:, :count]),
        "samples": model.sample(SHOWN_IMAGES, seed=0, codes=count).data,
    }
    return rows + [{"content": content, "png": encode_strip(made)} for content, made in images.items()]


def _by_row(errors: list[float], **shared: Any) -> list[Row]:
    return [{**shared, "row": number, "error": error} for number, error in enumerate(errors)]


def unexplained(errors: list[float], baseline: list[float]) -> dict[str, float]:
    """Return the error over the baseline's, in each region.

    >>> unexplained([1.0, 1.0, 3.0, 1.0], [4.0, 4.0, 4.0, 4.0])
    {'whole': 0.375, 'top quarter': 0.25, 'bottom half': 0.5}
    """
    height = len(errors)
    regions = {name: slice(round(start * height), round(stop * height)) for name, (start, stop) in REGIONS.items()}
    return {name: sum(errors[own]) / sum(baseline[own]) for name, own in regions.items()}


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide whether a quarter of the codes explains the whole image or its top rows only."""
    ratios = {(row["series"], row["region"]): row["unexplained"] for row in rows if "region" in row}
    channel, spatial = ({region: ratios[layout, region] for region in REGIONS} for layout in LAYOUTS)
    ratio = channel["bottom half"] / spatial["bottom half"]
    return [
        Verdict(
            "channel-wise: the bottom half is explained as well as the whole "
            f"(its unexplained share is at most {MAX_RATIO_TO_WHOLE} times that of the whole)",
            channel["bottom half"] <= MAX_RATIO_TO_WHOLE * channel["whole"],
            f"{channel['bottom half']:.3f} against {channel['whole']:.3f}",
            "channel-wise, a quarter of the code gives whole images",
        ),
        Verdict(
            f"spatial-wise: the bottom half is unexplained (error at least {MIN_UNEXPLAINED} of the mean image's)",
            spatial["bottom half"] >= MIN_UNEXPLAINED,
            f"{spatial['bottom half']:.3f}",
            "spatial-wise, a quarter of the code reconstructs only the top rows",
        ),
        Verdict(
            f"spatial-wise: the top quarter is explained (at most {MAX_UNEXPLAINED} unexplained)",
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


def draw(results: Results) -> Any:
    """Draw errors by row of pixels, and the images: one colour per layout, dotted at full length."""
    figure = new_figure(11.0, 4.2)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.4))
    axes = left.subplots()
    colours = dict(zip(LAYOUTS, ("C0", "C1"), strict=True))
    by_row = [row for row in results.rows if "row" in row]
    for (name, fraction), group in groupby(by_row, key=lambda row: (row["series"], row.get("fraction"))):
        style = ":k" if fraction is None else colours[name] + ("-" if fraction == QUARTER else ":")
        label = name if fraction is None else f"{name}, {fraction:.0%} of codes"
        axes.plot(*zip(*((row["error"], row["row"]) for row in group), strict=True), style, label=label)
    axes.invert_yaxis()
    axes.set(xlabel="mean squared error", ylabel="row of pixels", title=results.dataset, xlim=(0, None))
    left.legend(loc="outside lower center", ncols=2, fontsize="small")
    strips = [row for row in results.rows if "png" in row]
    for axis, row in zip(right.subplots(len(strips), 1), strips, strict=True):
        title = "data" if row["content"] == "data" else f"{row['series']}-wise {row['content']}, a quarter of the codes"
        show_strip(axis, row["png"], title)
    return figure
