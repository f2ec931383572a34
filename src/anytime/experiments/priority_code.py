"""Appendix F: samples that share their first code, and how much closer they are to each other than random pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.core.random import derive
from anytime.core.results import Results, Row, Verdict
from anytime.experiments.plots import encode_strip, new_figure, show_strip
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Runner
from anytime.model import AnytimeModel

CODES, SMOKE_CODES = 16, 3  # first codes that are compared
SAMPLES, SMOKE_SAMPLES = 64, 8  # samples for each of them
RANDOM_FACTOR = 8  # times as many samples that share nothing
SHOWN_CODES, SHOWN, COLUMNS = 4, 16, 8  # images in the figure
MIN_STANDARD_ERRORS = 2.0


def measure(runner: Runner) -> list[Row]:
    """Return distances of an ordered and an unordered run, for every seed."""
    s = runner.context
    codes, count = SMOKE_CODES if s.smoke else CODES, s.samples or (SMOKE_SAMPLES if s.smoke else SAMPLES)
    runner.notes.append(f"{codes} first codes, {count:,} samples of each")
    facts = {"samples": count, "codes": codes, "random": RANDOM_FACTOR}
    return runner.measure_series({v: v for v in PAIR}, lambda model, seed: model_rows(model, seed, codes, count), facts)


def model_rows(model: AnytimeModel, seed: int, codes: int, count: int) -> list[Row]:
    """Return a row for each first code, then their mean and spread. The prior itself samples the first codes."""
    random_distance = mean_distance(model.sample(RANDOM_FACTOR * count, seed=derive(seed, "priority", "random")).data)
    first_codes = model.sample(RANDOM_FACTOR * codes, seed=derive(seed, "priority", "codes"), codes=1).codes[:, 0].tolist()
    rows, ratios = list[Row](), list[float]()
    for code in list(dict.fromkeys(first_codes))[:codes]:
        x = model.sample(count, seed=derive(seed, "priority", code), prefix=torch.tensor([[code]])).data
        ratios.append(mean_distance(x) / random_distance)
        rows.append({"code": code, "ratio": ratios[-1], "samples": count, "engine": model.engine.name})
        if len(ratios) <= SHOWN_CODES:
            title = f"first code {code}: {ratios[-1]:.2f} of a random pair's distance"
            rows.append({"title": title, "png": encode_strip(x[:SHOWN], COLUMNS)})
    found = {"distance, random pairs": random_distance, "ratio, first code shared": mean(ratios)}
    found |= {"spread over codes": stdev(ratios)} if len(ratios) > 1 else {}
    return [*rows, *({"measure": name, "value": value, "codes": len(ratios)} for name, value in found.items())]


def mean_distance(x: Float[Tensor, "n ..."]) -> float:
    """Return the root mean squared difference per value, averaged over all pairs."""
    flat = x.flatten(1).double()
    return float(torch.pdist(flat).mean()) / math.sqrt(flat.shape[1])


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide whether samples that share a code are closer than random pairs, and closer when ordered."""
    ordered, unordered = ([row["ratio"] for row in rows if row["series"] == variant and "ratio" in row] for variant in PAIR)
    return [
        Verdict(
            "ordered: samples that share their first code are closer than random pairs",
            significantly_below(ordered, [1.0] * len(ordered)),
            f"{_format_ratios(ordered)} of the distance of random pairs",
            "samples sharing the first code share high-level global similarities",
        ),
        Verdict(
            "a shared first code brings samples closer when ordered than when unordered",
            significantly_below(ordered, unordered),
            f"ordered {_format_ratios(ordered)}, unordered {_format_ratios(unordered)}",
            "the first code has the highest priority (ordered)",
        ),
    ]


def significantly_below(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Return whether the first mean is below the second; None if it is, but within two standard errors.

    >>> [significantly_below(first, [1.0, 1.0]) for first in ([0.5, 0.6], [0.5, 1.4], [1.1, 1.2])]
    [True, None, False]
    """
    if mean(first) >= mean(second):
        return False
    error = math.sqrt(sum(stdev(values) ** 2 / len(values) if len(values) > 1 else math.inf for values in (first, second)))
    return True if mean(first) + MIN_STANDARD_ERRORS * error < mean(second) else None


def _format_ratios(ratios: Sequence[float]) -> str:
    spread = f" ± {stdev(ratios):.3f}" if len(ratios) > 1 else ""
    return f"{mean(ratios):.3f}{spread} ({len(ratios)} codes)"


def draw(results: Results) -> Any:
    """Draw samples that share their first code, of the first seed."""
    strips = [row for row in results.rows if "png" in row and row["seed"] == results.rows[0]["seed"]]
    grids = [[row for row in strips if row["series"] == variant] for variant in PAIR]
    n_rows = max(map(len, grids))
    figure = new_figure(10.0, 1 + 1.4 * n_rows)
    for column, own in zip(figure.subplots(n_rows, len(PAIR), squeeze=False).T, grids, strict=True):
        for axes in column:
            axes.set_axis_off()
        for axes, row in zip(column, own, strict=False):
            show_strip(axes, row["png"], f"{row['series']}, {row['title']}")
    figure.suptitle(results.dataset)
    return figure
