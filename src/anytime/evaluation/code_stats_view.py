"""Views of the code statistics: a figure and warnings for a run's report; sparklines and a table for a terminal."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anytime.core.config import from_dict
from anytime.core.errors import UserError
from anytime.core.plots import can_plot, plot_png
from anytime.core.results import Row, column, select
from anytime.evaluation.html import image
from anytime.evaluation.summary import new_figure
from anytime.metrics.code_stats import CodeStats, code_warnings

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # characters of a sparkline
LINES = 10  # positions in the table, besides the first and the last
CAPTION = "The gain of each code, the entropy of each position, and its bits under the prior, on validation data."


def stats_from_evaluation(rows: Sequence[Row]) -> CodeStats | None:
    """Return the code statistics in the rows of an evaluation: those of a model without its run."""
    errors, bits = select(rows, series="error"), select(rows, series="bits")
    if not errors or not bits:
        return None
    try:
        error, entropy = column(errors, "error"), column(bits, "entropy")
        found = {"examples": bits[0]["examples"], "bits": column(bits, "bits"), "entropy": entropy, "error": error}
        found |= {"error_examples": errors[0]["examples"], "gain": column(errors[1:], "gain")}
    except KeyError as error_key:
        raise UserError(f"a row of the evaluation lacks {error_key}; evaluate the model again") from None
    stats = from_dict(CodeStats, found, "the evaluation's code statistics")
    return replace(stats, warnings=code_warnings(stats.error or [], stats.entropy or []))


def code_stats_section(stats: CodeStats | None, *, smoke: bool = False) -> list[str]:
    """Return the parts of an HTML page; none if the run has no statistics of its codes."""
    if stats is None or stats.gain is None:
        return []
    warnings = [f"<p><strong>{_label(smoke)}: {html.escape(text)}.</strong></p>" for text in stats.warnings or []]
    figure = [image("png", plot_png(_figure(stats)), CAPTION)] if can_plot() else []
    return ["<h2>Code statistics</h2>", *warnings, *figure]


def _figure(stats: CodeStats) -> Any:
    figure, (drops, bits) = new_figure(2)
    assert stats.gain is not None
    positions = range(1, len(stats.gain) + 1)
    drops.bar(positions, stats.gain)
    bits.plot(positions, stats.entropy, marker=".", label="entropy")
    if stats.bits is not None:
        bits.plot(positions, stats.bits, marker=".", label="under the prior")
    drops.set(xlabel="code i", ylabel="Δ(i)")
    bits.set(xlabel="code i", ylabel="bits", ylim=(0, None))
    bits.legend()
    return figure


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Return a line of blocks from 0 to the largest value; more than `width` values are averaged in groups.

    >>> sparkline([0.0, 1.0, 2.0, 4.0]), sparkline([1.0, 3.0, 0.0, 0.0], 2)
    ('▁▃▅█', '█▁')
    """
    parts = [float(part.mean()) for part in np.array_split(np.asarray(values), min(width, len(values)))]
    top = max(max(parts), 1e-12)
    return "".join(BLOCKS[round(max(0.0, part) / top * (len(BLOCKS) - 1))] for part in parts)


def _label(smoke: bool) -> str:
    return "Usual at smoke scale" if smoke else "Warning"


def lines(stats: CodeStats, *, smoke: bool = False) -> list[str]:
    """Return the terminal view: a sparkline for each quantity, a table of some positions, the warnings."""
    quantities = {"gain": stats.gain, "entropy": stats.entropy, "bits": stats.bits}
    columns = {name: values for name, values in quantities.items() if values is not None}
    output = [f"{name:<8} {sparkline(values)}  up to {max(values):.4g}" for name, values in columns.items()]
    length = len(next(iter(columns.values())))
    table = columns if stats.error is None else {"error": stats.error[1:], **columns}
    output.append("    ".join(["code", *(f"{name:>9}" for name in table)]))
    stride = -(-length // LINES)
    for position in sorted({1, *range(stride, length + 1, stride), length}):
        cells = [f"{values[position - 1]:>9.5f}" for values in table.values()]
        output.append("    ".join([f"{position:>4}", *cells]))
    if stride > 1:
        output.append(f"shown: the first code, every multiple of {stride}, and the last")
    return [*output, *(f"{_label(smoke).lower()}: {text}" for text in stats.warnings or [])]
