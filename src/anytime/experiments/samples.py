"""Fig. 5 and Appendix G: the same samples from a quarter, a half, three quarters and all of their codes.

The number beside the grids is how far a shortened sample is from the whole one: coarse to fine means near from the start.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

from jaxtyping import Float, Int
from torch import Tensor

from anytime.core.results import Results, Row, Verdict, curve, read, write_figure
from anytime.experiments.image_strips import show, strip
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Runner
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

GRID_FRACTIONS = (0.25, 0.5, 0.75, 1.0)
SHOWN, COLUMNS = 24, 8  # pictures of each kind at each length
SAMPLES, SMOKE_SAMPLES = 1000, 24
"""Samples behind the distances."""


def compute(runner: Runner) -> Results:
    """Grids and distances of an ordered and an unordered run."""
    s = runner.context
    count = s.samples or (SMOKE_SAMPLES if s.smoke else SAMPLES)
    facts = {"samples": count, "fractions": GRID_FRACTIONS, "shown": SHOWN}
    rows = [
        row
        for variant in PAIR
        for row in runner.measure_run(variant, s.seed, facts, partial(model_rows, variant, s.seed, count))
    ]
    return runner.results(rows, decide(rows), [f"distances of {count:,} samples"])


def model_rows(variant: str, seed: int, count: int, model: AnytimeModel) -> list[Row]:
    """A row with the grid and the distance at every length, and one with all it takes to make the pictures again."""
    codes = model.sample(count, seed=seed).codes
    shared = {"series": variant, "seed": seed, "length": model.length}
    full = model.decode(codes)
    rows: list[Row] = []
    for fraction in GRID_FRACTIONS:
        kept = code_count(model.length, fraction=fraction)
        x = model.decode(codes[:, :kept])
        here = {"fraction": fraction, "codes": kept, "distance": distance(x, full), "samples": count}
        rows.append({**shared, **here, "png": strip(x[:SHOWN], COLUMNS)})
    return [*rows, {**shared, "engine": model.engine.name, "sampled_codes": codes_as_text(codes[:SHOWN])}]


def distance(x: Float[Tensor, "n ..."], full: Float[Tensor, "n ..."]) -> float:
    """Mean squared difference, per value in [0, 1]."""
    return float((x - full).double().square().mean())


def codes_as_text(codes: Int[Tensor, "n length"]) -> list[str]:
    """Codes as words, a sample each: numbers would take a line of the file each.

    >>> import torch
    >>> codes_as_text(torch.tensor([[3, 17], [5, 0]]))
    ['3 17', '5 0']
    """
    return [" ".join(map(str, row)) for row in codes.tolist()]


def decide(rows: list[Row]) -> list[Verdict]:
    """From coarse to fine, and only when ordered."""
    ordered, unordered = (curve(rows, variant, "fraction", "distance") for variant in PAIR)
    falls = all(ordered[a] > ordered[b] for a, b in pairwise(GRID_FRACTIONS))
    nearer = [f for f in GRID_FRACTIONS[:-1] if ordered[f] < unordered[f]]
    pairs = "; ".join(f"{f:g}: {ordered[f]:.4f} against {unordered[f]:.4f}" for f in GRID_FRACTIONS[:-1])
    return [
        Verdict(
            "ordered: every further quarter of the codes brings samples nearer to their full length",
            falls,
            ", ".join(f"{f:g}: {ordered[f]:.4f}" for f in GRID_FRACTIONS),
            "global structure first, then gradually local details",
        ),
        Verdict(
            "shortened samples are nearer to their full length when ordered than when not",
            len(nearer) == len(GRID_FRACTIONS) - 1,
            pairs,
            "sample quality degrades gracefully (ordered)",
        ),
    ]


def draw(path: Path) -> Path:
    """The figure beside a results file, from its pictures alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(10, 8), layout="constrained")
    grids = [row for row in results.rows if "png" in row]
    for axes, row in zip(figure.subplots(len(GRID_FRACTIONS), len(PAIR)).T.flat, grids, strict=True):
        show(axes, row["png"], f"{row['series']}, {row['codes']} of {row['length']} codes")
    figure.suptitle(results.dataset)
    return write_figure(path, figure)
