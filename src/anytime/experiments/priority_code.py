"""Appendix F: samples that share their first code, and how much closer they are to each other than random pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev

import torch
from jaxtyping import Float
from torch import Tensor

from anytime.core.random import derive
from anytime.core.results import Results, Row, Verdict, read, write_figure
from anytime.experiments.image_strips import show, strip
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Runner
from anytime.model import AnytimeModel

CODES, SMOKE_CODES = 16, 3  # first codes that are tried
SAMPLES, SMOKE_SAMPLES = 64, 8  # samples of each
RANDOM_FACTOR = 8  # times as many that share nothing
SHOWN_CODES, SHOWN, COLUMNS = 4, 16, 8  # pictures in the figure
MIN_STANDARD_ERRORS = 2.0  # standard errors


def compute(runner: Runner) -> Results:
    """Distances of an ordered and an unordered run, for every seed."""
    s = runner.context
    codes, count = SMOKE_CODES if s.smoke else CODES, s.samples or (SMOKE_SAMPLES if s.smoke else SAMPLES)
    facts = {"samples": count, "codes": codes, "random": RANDOM_FACTOR}
    rows = [
        row
        for seed in s.seeds
        for variant in PAIR
        for row in runner.measure_run(variant, seed, facts, partial(model_rows, variant, seed, codes, count))
    ]
    return runner.results(rows, decide(rows), [f"{codes} first codes, {count:,} samples of each"])


def model_rows(variant: str, seed: int, codes: int, count: int, model: AnytimeModel) -> list[Row]:
    """A row for each first code, then what they come to; the codes are the first that the prior itself draws."""
    shared = {"series": variant, "seed": seed}
    random_distance = mean_distance(model.sample(RANDOM_FACTOR * count, seed=derive(seed, "priority", "random")).data)
    first_codes = model.sample(RANDOM_FACTOR * codes, seed=derive(seed, "priority", "codes"), codes=1).codes[:, 0].tolist()
    rows: list[Row] = []
    for code in list(dict.fromkeys(first_codes))[:codes]:
        x = model.sample(count, seed=derive(seed, "priority", code), prefix=torch.tensor([[code]])).data
        row = {
            **shared,
            "code": code,
            "ratio": mean_distance(x) / random_distance,
            "samples": count,
            "engine": model.engine.name,
        }
        rows.append(row | ({"png": strip(x[:SHOWN], COLUMNS)} if len(rows) < SHOWN_CODES else {}))
    ratios = [row["ratio"] for row in rows]
    found = {"distance, random pairs": random_distance, "ratio, first code shared": mean(ratios)}
    found |= {"spread over codes": stdev(ratios)} if len(ratios) > 1 else {}
    return [*rows, *({**shared, "measure": name, "value": value, "codes": len(ratios)} for name, value in found.items())]


def mean_distance(x: Float[Tensor, "n ..."]) -> float:
    """Mean over all pairs of the root mean squared difference per value."""
    flat = x.flatten(1).double()
    return float(torch.pdist(flat).mean()) / math.sqrt(flat.shape[1])


def decide(rows: list[Row]) -> list[Verdict]:
    """Closer than random pairs, and closer than without an order: by more than chance over codes, or undecided."""
    ordered, unordered = ([row["ratio"] for row in rows if row["series"] == variant and "ratio" in row] for variant in PAIR)
    return [
        Verdict(
            "ordered: samples that share their first code are closer than random pairs",
            significantly_below(ordered, [1.0] * len(ordered)),
            f"{_format_ratios(ordered)} of the distance of random pairs",
            "samples sharing the first code share high-level global similarities",
        ),
        Verdict(
            "sharing the first code says more when ordered than when not",
            significantly_below(ordered, unordered),
            f"ordered {_format_ratios(ordered)}, unordered {_format_ratios(unordered)}",
            "the first code has the highest priority (ordered)",
        ),
    ]


def significantly_below(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Whether the first mean is below the second; None where it is, but within two standard errors.

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


def draw(path: Path) -> Path:
    """The figure beside a results file, from its pictures and numbers alone."""
    import matplotlib.figure

    results = read(path)
    first = next(row["seed"] for row in results.rows)
    grids = {
        variant: [r for r in results.rows if r["series"] == variant and "png" in r and r["seed"] == first] for variant in PAIR
    }
    n_rows = max(map(len, grids.values()))
    figure = matplotlib.figure.Figure(figsize=(10, 1 + 1.4 * n_rows), layout="constrained")
    for column, (variant, own) in zip(figure.subplots(n_rows, len(PAIR), squeeze=False).T, grids.items(), strict=True):
        for axes in column:
            axes.set_axis_off()
        for axes, row in zip(column, own, strict=False):
            show(axes, row["png"], f"{variant}, first code {row['code']}: {row['ratio']:.2f} of a random pair's distance")
    figure.suptitle(results.dataset)
    return write_figure(path, figure)
