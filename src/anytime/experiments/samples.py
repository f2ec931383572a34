"""Fig. 5 and Appendix G: the same samples from a quarter, a half, three quarters and all of their codes.

Also the distance of a truncated sample from the full one: from coarse to fine, it is small from the start.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from anytime.core.results import Results, Row, Verdict, curve
from anytime.experiments.plots import encode_strip, new_figure, show_strip
from anytime.experiments.registry import PAIR
from anytime.experiments.runner import Runner
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count
from anytime.training.sample_grids import GRID_FRACTIONS

SHOWN, COLUMNS = 24, 8  # images of each series at each length
SAMPLES, SMOKE_SAMPLES = 1000, 24
"""Number of samples for the distances."""


def measure(runner: Runner) -> list[Row]:
    """Return grids and distances of an ordered and an unordered run."""
    s = runner.context
    count = s.samples or (SMOKE_SAMPLES if s.smoke else SAMPLES)
    runner.notes.append(f"distances of {count:,} samples")
    facts = {"samples": count, "fractions": GRID_FRACTIONS, "shown": SHOWN}
    return runner.measure_series({v: v for v in PAIR}, lambda model, seed: model_rows(model, seed, count), facts)


def model_rows(model: AnytimeModel, seed: int, count: int) -> list[Row]:
    """Return the mean squared distance and the grid at every length, and the codes of the shown samples."""
    codes = model.sample(count, seed=seed).codes
    full = model.decode(codes)
    rows: list[Row] = []
    for fraction in GRID_FRACTIONS:
        kept = code_count(model.length, fraction=fraction)
        x = model.decode(codes[:, :kept])
        here = {"length": model.length, "fraction": fraction, "codes": kept}
        rows.append({**here, "distance": float((x - full).double().square().mean()), "samples": count})
        rows.append({**here, "png": encode_strip(x[:SHOWN], COLUMNS)})
    texts = [" ".join(map(str, row)) for row in codes[:SHOWN].tolist()]  # as numbers, each code would take a line of the file
    return [*rows, {"length": model.length, "engine": model.engine.name, "sampled_codes": texts}]


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide whether samples go from coarse to fine, and only when ordered."""
    ordered, unordered = (curve(rows, variant, "fraction", "distance") for variant in PAIR)
    short = GRID_FRACTIONS[:-1]
    return [
        Verdict(
            "ordered: every further quarter of the codes brings samples closer to their full length",
            all(ordered[a] > ordered[b] for a, b in pairwise(GRID_FRACTIONS)),
            ", ".join(f"{f:g}: {ordered[f]:.4f}" for f in GRID_FRACTIONS),
            "global structure first, then gradually local details",
        ),
        Verdict(
            "truncated samples are closer to their full length when ordered than when unordered",
            all(ordered[f] < unordered[f] for f in short),
            "; ".join(f"{f:g}: {ordered[f]:.4f} against {unordered[f]:.4f}" for f in short),
            "sample quality degrades gracefully (ordered)",
        ),
    ]


def draw(results: Results) -> Any:
    """Draw the grids by code length."""
    figure = new_figure(10.0, 8.0)
    grids = [row for row in results.rows if "png" in row]
    for axes, row in zip(figure.subplots(len(GRID_FRACTIONS), len(PAIR)).T.flat, grids, strict=True):
        show_strip(axes, row["png"], f"{row['series']}, {row['codes']} of {row['length']} codes")
    figure.suptitle(results.dataset)
    return figure
