"""The order of a model's codes to look at: figure and alarms for a run's report, lines of blocks and a table for a terminal."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anytime.core.plots import can_plot, plot_png
from anytime.evaluation.html import image
from anytime.metrics.code_stats import code_warnings
from anytime.metrics.quality import Row

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # characters: more positions than these share one
LINES = 10  # of the table
CAPTION = "What each code brings, how much each position varies, and what the prior needs to know it; bits, validation data."


def stats_from_evaluation(rows: Sequence[Row]) -> dict[str, Any]:
    """An order as `training.order` writes it, from the rows of an evaluation: of a model that has no run any more."""
    errors, bits = ([row for row in rows if row["series"] == series] for series in ("error", "bits"))
    if not errors or not bits:
        return {}
    error, entropy = [row["error"] for row in errors], [row["entropy"] for row in bits]
    return {
        "error_examples": errors[0]["examples"],
        "error": error,
        "gain": [row["gain"] for row in errors[1:]],
        "examples": bits[0]["examples"],
        "entropy": entropy,
        "bits": [row["bits"] for row in bits],
        "warnings": code_warnings(error, entropy),
    }


def code_stats_section(stats: Mapping[str, Any]) -> list[str]:
    """Parts of an HTML page; none where the run wrote nothing."""
    if "gain" not in stats:
        return []
    parts = [
        "<h2>Order of the codes</h2>",
        *(f"<p><strong>Warning: {html.escape(text)}.</strong></p>" for text in stats["warnings"]),
    ]
    if can_plot():
        parts.append(image("png", plot_png(_figure(stats)), CAPTION))
    return parts


def _figure(stats: Mapping[str, Any]) -> Any:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 2.8), layout="constrained")
    drops, bits = figure.subplots(1, 2)
    positions = range(1, len(stats["gain"]) + 1)
    drops.bar(positions, stats["gain"])
    bits.plot(positions, stats["entropy"], marker=".", label="entropy")
    if "bits" in stats:
        bits.plot(positions, stats["bits"], marker=".", label="under the prior")
    drops.set(xlabel="code i", ylabel="Δ(i)")
    bits.set(xlabel="code i", ylabel="bits", ylim=(0, None))
    bits.legend()
    return figure


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """A line of blocks from 0 to the largest value; neighbours are averaged where there are more than `width`.

    >>> sparkline([0.0, 1.0, 2.0, 4.0]), sparkline([1.0, 3.0, 0.0, 0.0], 2)
    ('▁▃▅█', '█▁')
    """
    parts = [float(part.mean()) for part in np.array_split(np.asarray(values), min(width, len(values)))]
    top = max(max(parts), 1e-12)
    return "".join(BLOCKS[round(max(0.0, part) / top * (len(BLOCKS) - 1))] for part in parts)


def lines(stats: Mapping[str, Any]) -> list[str]:
    """The order for a terminal: a line of blocks for each quantity, a table of some positions, the alarms."""
    columns = {name: stats[name] for name in ("gain", "entropy", "bits") if name in stats}
    output = [f"{name:<8} {sparkline(values)}  up to {max(values):.4g}" for name, values in columns.items()]
    length = len(next(iter(columns.values())))
    errors = {"error": stats["error"][1:]} if "error" in stats else {}
    table = errors | columns
    output.append("    ".join(["code", *(f"{name:>9}" for name in table)]))
    for position in np.unique(np.linspace(1, length, min(length, LINES)).round().astype(int)):
        cells = [f"{values[position - 1]:>{max(9, len(name))}.5f}" for name, values in table.items()]
        output.append("    ".join([f"{position:>4}", *cells]))
    return [*output, *(f"warning: {text}" for text in stats.get("warnings", []))]
