"""What an evaluation shows: tables, notes and figures, made from the rows of its results, on one HTML page."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anytime.core.plots import can_plot, plot_png
from anytime.core.results import Row, column, select
from anytime.evaluation.html import facts_table, html_page, image, table
from anytime.metrics.code_stats import code_warnings


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
        missing = [] if can_plot() else ["<p>Curves need matplotlib.</p>"]
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


def plot_series(
    axes: Any, rows: Sequence[Row], series: str, x: str, y: str, label: str = "", marker: str = "o", **settings: Any
) -> None:
    """Plot one value of a series against another, from zero; named lines have a legend."""
    own = select(rows, series=series)
    axes.plot(column(own, x), column(own, y), marker=marker, label=label or None)
    axes.set(**{"xlabel": "fraction of the codes" if x == "fraction" else x, "ylim": (0, None), **settings})
    if label:
        axes.legend()


def new_figure(columns: int, rows: int = 1, size: tuple[float, float] = (9.0, 2.8)) -> tuple[Any, list[Any]]:
    """Return a matplotlib figure and its axes, row by row."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def curves(rows: Sequence[Row], plots: Mapping[str, Callable[[Sequence[Row]], Any]]) -> dict[str, bytes]:
    """Return figures of the rows as PNG files; none without matplotlib."""
    return {name: plot_png(plot(rows)) for name, plot in plots.items()} if can_plot() else {}


def bits_figure(rows: Sequence[Row]) -> Any:
    """Plot the bits of each position under the prior."""
    figure, (axes,) = new_figure(1)
    plot_series(axes, rows, "bits", "position", "bits", marker=".", ylabel="bits")
    axes.axhline(math.log2(select(rows, series="codes")[0]["codebook_size"]), linestyle="--", color="grey")
    return figure


def codes_note(rows: Sequence[Row], example: str) -> str:
    """Describe the held-out codes; `example` names what one sequence of codes stands for."""
    (codes,) = select(rows, series="codes")
    return (
        f"{codes['bits_per_code']:.3f} bits per held-out code, {codes['bits']:.1f} per {example}; "
        f"{codes['used']} of {codes['codebook_size']} codebook entries used, perplexity {codes['perplexity']:.0f}."
    )


def warning_notes(rows: Sequence[Row], *more: str, smoke: bool = False) -> list[str]:
    """Return the warnings of the rows and of the code statistics as sentences; at smoke scale they are no alarm."""
    found = dict.fromkeys(f"{row['series']}: {row['warning']}" for row in rows if "warning" in row)
    codes = code_warnings(column(select(rows, series="error"), "error"), column(select(rows, series="bits"), "entropy"))
    label = "Usual at smoke scale" if smoke else "Warning"
    return [f"{label}, {text}." for text in [*found, *codes, *more]]
