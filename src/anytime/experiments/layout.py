"""Fig. 2: a quarter of the codes, channel-wise against spatial-wise, of two models that differ in nothing else.

python -m anytime.experiments.layout --name mnist --runs channel=runs/a spatial=runs/b --data DIR

The number is the reconstruction error of each row of pixels. Rows differ in how much there is to know (MNIST's outermost are
black), so the verdicts compare shares: the error in a part of the picture over that of the mean training picture there.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anytime import data
from anytime.data import Dataset
from anytime.data.loader import to_float
from anytime.data.pictures import grid, png_bytes
from anytime.errors import UserError
from anytime.evaluation.reconstruction import BATCH, error_by_row
from anytime.experiments.results import Results, Row, Verdict, read, recorded_command
from anytime.experiments.runs import decided, facts, named_runs, schedule
from anytime.model import AnytimeModel, load, pick_device
from anytime.sampling.budget import code_count
from anytime.training.folder import read_config

QUARTER = 0.25
LAYOUTS = ("channel", "spatial")
PICTURES = 8  # of each kind in the figure
MEAN = "mean picture"
REGIONS = {"whole": (0.0, 1.0), "top quarter": (0.0, 0.25), "bottom half": (0.5, 1.0)}
"""Parts of the picture, from and to which share of its height."""
ALIKE, NOTHING, KNOWN, LESS = 1.25, 0.95, 0.5, 0.5
"""Bounds of the verdicts, set before any model was trained."""


def compute(dataset: Dataset, runs: Mapping[str, Path], device: torch.device, command: str = "") -> Results:
    """Held-out error by row of pixels at a quarter of the codes and at all of them, and a few pictures from a quarter."""
    if runs.keys() != set(LAYOUTS):
        raise UserError(f"layout compares --runs channel=RUN spatial=RUN, not {', '.join(runs) or 'nothing'}")
    x = dataset.held_out.to(device)
    yardstick = mean_picture_errors(dataset)
    rows = _by_row({"series": MEAN}, yardstick)
    rows.append({"series": "data", "what": "data", "png": _strip(to_float(dataset.held_out[:PICTURES]))})
    for layout, folder in runs.items():
        model = load(folder, device)
        if (found := model.config.autoencoder.layout) != layout:
            raise UserError(f"--runs {layout}={folder} holds a {found}-wise model; train one with --layout {layout}")
        rows += _rows(layout, model, x, yardstick, read_config(folder).seed)
    verdicts = decided(decide(rows), dataset, runs)
    return Results("layout", dataset.name, command, facts(dataset, runs, device), schedule(runs), rows, verdicts)


def mean_picture_errors(dataset: Dataset) -> list[float]:
    """Held-out error of the mean training picture, by row of pixels."""
    parts = dataset.pictures.split(BATCH)  # in parts: a set of bytes is eight times larger as float64
    mean = torch.stack([to_float(part).double().sum(0) for part in parts]).sum(0) / len(dataset.train)
    errors = [(to_float(part).double() - mean).square().sum((0, 1, 3)) for part in dataset.held_out.split(BATCH)]
    return (torch.stack(errors).sum(0) * dataset.shape[1] / dataset.held_out.numel()).tolist()


def _rows(layout: str, model: AnytimeModel, x: Tensor, yardstick: list[float], seed: int) -> list[Row]:
    rows: list[Row] = []
    for fraction in (QUARTER, 1.0):
        count = code_count(model.length, fraction=fraction)
        shared = {"series": layout, "fraction": fraction, "codes": count, "length": model.length, "seed": seed}
        errors = error_by_row(model, x, count)
        rows += _by_row(shared, errors)
        if fraction == QUARTER:
            rows += [{**shared, "region": name, "unexplained": share} for name, share in unexplained(errors, yardstick).items()]
    count = code_count(model.length, fraction=QUARTER)
    pictures = {
        "reconstructions": model.decode(model.encode(to_float(x[:PICTURES]))[:, :count]),
        "samples": model.sample(PICTURES, seed=0, codes=count).data,
    }
    return rows + [{"series": layout, "what": what, "png": _strip(made)} for what, made in pictures.items()]


def _by_row(shared: Row, errors: list[float]) -> list[Row]:
    return [{**shared, "row": number, "error": error} for number, error in enumerate(errors)]


def _strip(x: Float[Tensor, "n channel height width"]) -> str:
    """Pictures side by side, as a PNG in text: the figure is drawn from the results file alone."""
    return base64.b64encode(png_bytes(grid(x, columns=len(x)))).decode()


def unexplained(errors: list[float], yardstick: list[float]) -> dict[str, float]:
    """Error over the yardstick's, in each region.

    >>> unexplained([1.0, 1.0, 3.0, 1.0], [4.0, 4.0, 4.0, 4.0])
    {'whole': 0.375, 'top quarter': 0.25, 'bottom half': 0.5}
    """
    shares = {}
    for name, (start, stop) in REGIONS.items():
        own = slice(round(start * len(errors)), round(stop * len(errors)))
        shares[name] = sum(errors[own]) / sum(yardstick[own])
    return shares


def decide(rows: list[Row]) -> list[Verdict]:
    """Whole pictures or top rows only, by the share of each region that a quarter of the codes leaves unexplained."""
    share = {(row["series"], row["region"]): row["unexplained"] for row in rows if "region" in row}
    channel, spatial = ({region: share[layout, region] for region in REGIONS} for layout in LAYOUTS)
    ratio = channel["bottom half"] / spatial["bottom half"]
    return [
        Verdict(
            f"channel-wise: the bottom half is known as well as the whole (at most {ALIKE} times its share is unexplained)",
            channel["bottom half"] <= ALIKE * channel["whole"],
            f"{channel['bottom half']:.3f} against {channel['whole']:.3f}",
        ),
        Verdict(
            f"spatial-wise: nothing is known of the bottom half (error at least {NOTHING} of the mean picture's)",
            spatial["bottom half"] >= NOTHING,
            f"{spatial['bottom half']:.3f}",
        ),
        Verdict(
            f"spatial-wise: the top quarter is known (at most {KNOWN} unexplained)",
            spatial["top quarter"] <= KNOWN,
            f"{spatial['top quarter']:.3f}",
        ),
        Verdict(
            f"in the bottom half the channel-wise error is at most {LESS} of the spatial-wise one",
            ratio <= LESS,
            f"{ratio:.3f}",
        ),
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure
    import matplotlib.image

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
    for axis, strip in zip(right.subplots(len(strips), 1), strips, strict=True):
        axis.imshow(matplotlib.image.imread(io.BytesIO(base64.b64decode(strip["png"])), format="png"), cmap="gray")
        title = "data" if strip["what"] == "data" else f"{strip['series']}-wise {strip['what']}, a quarter of the codes"
        axis.set_title(title, fontsize="small")
        axis.set_axis_off()
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=120)
    return target


def _curves(rows: list[Row]) -> dict[tuple[str, float | None], str]:
    """Each curve and its style: one colour per layout, dotted at full length, grey for the yardstick."""
    keys = dict.fromkeys((row["series"], row.get("fraction")) for row in rows if "row" in row)
    colours = dict(zip(LAYOUTS, ("C0", "C1"), strict=True))
    return {key: (":k" if key[1] is None else colours[key[0]] + ("-" if key[1] == QUARTER else ":")) for key in keys}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    name: str
    runs: tuple[str, ...]
    """channel=RUN spatial=RUN."""
    data: Path | None = None
    """A local copy of the data set."""
    out: Path = Path("results")
    device: str | None = None


def main() -> None:
    import tyro

    arguments = tyro.cli(Arguments)
    device = pick_device(arguments.device)
    dataset = data.load(arguments.name, data=arguments.data)
    command = recorded_command("anytime.experiments.layout")
    results = compute(dataset, named_runs(arguments.runs), device, command)
    path = results.write(arguments.out)
    draw(path)
    for row in results.rows:
        if "region" in row:
            print(
                f"{row['series']:<8} {row['codes']:>3} of {row['length']} codes  {row['region']:<12} {row['unexplained']:.3f}"
            )
    for verdict in results.verdicts:
        print(f"{verdict.holds}  {verdict.claim}: {verdict.evidence}")
    print(path)


if __name__ == "__main__":
    main()
