"""What an evaluation shows: tables, notes and figures, made from the rows of its results, on one HTML page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anytime.core.plots import can_plot
from anytime.core.results import Row
from anytime.evaluation.html import facts_table, html_page, image, table
from anytime.metrics.code_stats import code_warnings

AXES = {"fraction": "fraction of the codes"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text."""

    head: list[str]
    body: list[list[str]]


@dataclass(frozen=True, slots=True)
class Summary:
    """What is shown of an evaluation."""

    tables: list[Table]
    notes: list[str]
    images: Mapping[str, bytes]  # PNG files by name
    captions: Mapping[str, str]
    audio_players: str = ""  # HTML

    def page(self, title: str, facts: Mapping[str, str]) -> str:
        """Return the HTML page: tables, notes, audio, figures, and how it was made."""
        missing = [] if can_plot() else ["<p>Curves need matplotlib (the extra <code>plots</code>).</p>"]
        parts = [
            *(table(each.head, each.body) for each in self.tables),
            *(f"<p>{html.escape(note)}</p>" for note in self.notes),
            self.audio_players,
            *missing,
            *(image("png", content, self.captions[name]) for name, content in self.images.items()),
            "<h2>Provenance</h2>",
            facts_table(facts),
        ]
        return html_page(title, parts)


def rows_of(rows: Sequence[Row], series: str) -> list[Row]:
    """Return the rows of one series."""
    return [row for row in rows if row["series"] == series]


def column(rows: Sequence[Row], key: str) -> list[Any]:
    """Return one value of every row."""
    return [row[key] for row in rows]


def plot_column(axes: Any, rows: Sequence[Row], x: str, y: str, label: str = "", marker: str = "o") -> None:
    """Plot one value of the rows against another, from zero; named lines have a legend."""
    axes.plot(column(rows, x), column(rows, y), marker=marker, label=label or None)
    axes.set(xlabel=AXES.get(x, x), ylim=(0, None))
    if label:
        axes.legend()


def new_figure(columns: int) -> tuple[Any, list[Any]]:
    """Return a wide matplotlib figure and its axes, side by side."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 2.8), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, columns)))


def bits_figure(rows: Sequence[Row]) -> Any:
    """Plot the bits of each position under the prior."""
    figure, (axes,) = new_figure(1)
    own = rows_of(rows, "bits")
    plot_column(axes, own, "position", "bits", marker=".")
    axes.axhline(math.log2(rows_of(rows, "codes")[0]["codebook_size"]), linestyle="--", color="grey")
    axes.set(ylabel="bits")
    return figure


def codes_note(rows: Sequence[Row], example: str) -> str:
    """Describe the held-out codes; `example` names what one sequence of codes stands for."""
    (codes,) = rows_of(rows, "codes")
    return (
        f"{codes['bits_per_code']:.3f} bits per held-out code, {codes['bits']:.1f} per {example}; "
        f"{codes['used']} of {codes['codebook_size']} codebook entries used, perplexity {codes['perplexity']:.0f}."
    )


def warning_notes(rows: Sequence[Row], *more: str) -> list[str]:
    """Return the warnings of the rows and of the code statistics as sentences."""
    found = dict.fromkeys(f"{row['series']}: {row['warning']}" for row in rows if "warning" in row)
    codes = code_warnings(column(rows_of(rows, "error"), "error"), column(rows_of(rows, "bits"), "entropy"))
    return [f"Warning, {text}." for text in [*found, *codes, *more]]
