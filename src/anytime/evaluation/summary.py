"""An evaluation to look at: curves drawn from its rows alone, sample grids by code length, one HTML file with both."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from anytime.data.loader import to_float
from anytime.data.pictures import labelled_rows, png_bytes
from anytime.evaluation.document import can_plot, document, facts_table, picture, plot_png, table
from anytime.evaluation.quality import Row
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

SHOWN = 16  # pictures in a row of a grid
CAPTIONS = {
    "quality": "Distance to the training set, precision and recall by share of the codes; dashed: held-out pictures.",
    "error": "Held-out reconstruction error from the first codes, pixels in [0, 1], and what each code brings.",
    "bits": "Bits of each held-out code under the prior; dashed: what a prior that knows nothing needs.",
    "speed": "Samples a second by number of codes, and the decoder's share of the time.",
    "samples": "The same samples from fewer and more of their codes.",
    "reconstructions": "Held-out pictures and their reconstructions from fewer and more of their codes.",
}


def distance_name(rows: Sequence[Row]) -> str:
    """`fid`, or what stands for it where the network is another."""
    return "fid" if any("fid" in row for row in rows) else "frechet_random"


def grids(
    model: AnytimeModel, x: UInt8[Tensor, "n channel height width"], fractions: Sequence[float], seed: int
) -> dict[str, bytes]:
    """PNG files: samples, and reconstructions of x, a row for each fraction of the codes."""
    counts = [code_count(model.length, fraction=fraction) for fraction in fractions]
    pixels = to_float(x[:SHOWN])
    drawn, known = model.sample(SHOWN, seed=seed).codes, model.encode(pixels)
    labels = [f"{count} of {model.length} codes" for count in counts]
    rows = [[model.decode(codes[:, :count]).cpu() for count in counts] for codes in (drawn, known)]
    sheets = {
        "samples": labelled_rows(list(zip(labels, rows[0], strict=True))),
        "reconstructions": labelled_rows([("data", pixels), *zip(labels, rows[1], strict=True)]),
    }
    return {name: png_bytes(sheet) for name, sheet in sheets.items()}


def curves(rows: Sequence[Row]) -> dict[str, bytes]:
    """PNG files by name; none without matplotlib."""
    if not can_plot():
        return {}
    drawings = {"quality": _quality, "error": _error, "bits": draw_bits, "speed": _speed}
    return {name: plot_png(draw(rows)) for name, draw in drawings.items()}


def figure_of(columns: int) -> tuple[Any, list[Any]]:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 2.8), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, columns)))


def of_series(rows: Sequence[Row], series: str) -> list[Row]:
    return [row for row in rows if row["series"] == series]


def _quality(rows: Sequence[Row]) -> Any:
    figure, (distances, kids, covers) = figure_of(3)
    name, suffix = distance_name(rows), "" if distance_name(rows) == "fid" else "_random"
    for series in ("samples", "reconstructions"):
        own = of_series(rows, series)
        fractions = [row["fraction"] for row in own]
        distances.plot(fractions, [row[name] for row in own], marker="o", label=series)
        spread = [row[f"kid_sd{suffix}"] for row in own]
        kids.errorbar(fractions, [row[f"kid{suffix}"] for row in own], spread, marker="o", capsize=3, label=series)
    for row in of_series(rows, "held-out data"):
        distances.axhline(row[name], linestyle="--", color="grey")
        kids.axhline(row[f"kid{suffix}"], linestyle="--", color="grey")
    for part in ("precision", "recall"):
        own = of_series(rows, "samples")
        covers.plot([row["fraction"] for row in own], [row[part + suffix] for row in own], marker="o", label=part)
    distances.set(xlabel="share of the codes", ylabel="FID" if name == "fid" else name, ylim=(0, None))
    kids.set(xlabel="share of the codes", ylabel=f"KID{suffix.replace('_', ', ')}")
    covers.set(xlabel="share of the codes", ylabel=f"share{suffix.replace('_', ', ')}", ylim=(0, 1))
    for axes in (distances, kids, covers):
        axes.legend()
    return figure


def _error(rows: Sequence[Row]) -> Any:
    figure, (errors, drops) = figure_of(2)
    own = of_series(rows, "error")
    errors.plot([row["codes"] for row in own], [row["error"] for row in own], marker=".")
    drops.bar([row["codes"] for row in own[1:]], [row["gain"] for row in own[1:]])
    errors.set(xlabel="codes kept", ylabel="mean squared error", ylim=(0, None))
    drops.set(xlabel="code i", ylabel="Δ(i)")
    return figure


def draw_bits(rows: Sequence[Row]) -> Any:
    figure, (axes,) = figure_of(1)
    own = of_series(rows, "bits")
    axes.plot([row["position"] for row in own], [row["bits"] for row in own], marker=".")
    axes.axhline(math.log2(of_series(rows, "codes")[0]["codebook_size"]), linestyle="--", color="grey")
    axes.set(xlabel="position", ylabel="bits", ylim=(0, None))
    return figure


def _speed(rows: Sequence[Row]) -> Any:
    figure, (rates, shares) = figure_of(2)
    own = of_series(rows, "speed")
    counts = [row["codes"] for row in own]
    rates.plot(counts, [row["samples_per_second"] for row in own], marker="o")
    shares.plot(counts, [row["decode_share"] for row in own], marker="o")
    rates.set(xlabel="codes", ylabel=f"samples / s, batch {own[0]['batch']}", ylim=(0, None))
    shares.set(xlabel="codes", ylabel="decoder's share", ylim=(0, 1))
    return figure


def lines(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The main table, head and body: a line for each fraction."""
    name = distance_name(rows)
    suffix = "" if name == "fid" else "_random"
    head = ["fraction", "codes", name, f"kid{suffix}", "± sd", "precision", "recall", f"reconstruction {name}", "samples / s"]
    body = [
        [
            f"{row['fraction']:g}",
            str(row["codes"]),
            f"{row[name]:.2f}",
            f"{row[f'kid{suffix}']:.5f}",
            f"{row[f'kid_sd{suffix}']:.5f}",
            f"{row[f'precision{suffix}']:.3f}",
            f"{row[f'recall{suffix}']:.3f}",
            f"{back[name]:.2f}",
            f"{speed['samples_per_second']:.1f}",
        ]
        for row, back, speed in zip(
            of_series(rows, "samples"), of_series(rows, "reconstructions"), of_series(rows, "speed"), strict=True
        )
    ]
    return head, body


def notes(rows: Sequence[Row]) -> list[str]:
    """What belongs beside the table: warnings of its rows, the yardstick, the codes."""
    name = distance_name(rows)
    (data,), (codes,), sampled = of_series(rows, "held-out data"), of_series(rows, "codes"), of_series(rows, "samples")[0]
    warnings = dict.fromkeys(f"{row['series']}: {row['warning']}" for row in rows if "warning" in row)
    return [
        f"{sampled['samples']:,} samples (seed {sampled['seed']}) against {sampled['reference']:,} training pictures, "
        f"network {sampled['network']}; precision and recall from {sampled['kept']:,} features.",
        f"{data['samples']:,} held-out pictures themselves: {name} {data[name]:.2f}.",
        f"{codes['bits_per_code']:.3f} bits a held-out code, {codes['bits']:.1f} an example; "
        f"{codes['used']} of {codes['codebook_size']} codebook entries used, perplexity {codes['perplexity']:.0f}.",
        *(f"Warning, {text}." for text in warnings),
    ]


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of an evaluation."""

    table: tuple[list[str], list[list[str]]]  # head and body
    notes: list[str]
    pictures: Mapping[str, bytes]  # PNG files by name
    captions: Mapping[str, str]
    players: str = ""  # of sounds, as HTML


def report(title: str, view: View, facts: Mapping[str, str]) -> str:
    """The HTML file: table, grids, curves, how it was made."""
    missing = [] if can_plot() else ["<p>Curves need matplotlib (the extra <code>plots</code>).</p>"]
    return document(
        title,
        [
            table(*view.table),
            *(f"<p>{html.escape(note)}</p>" for note in view.notes),
            view.players,
            *missing,
            *(picture("png", content, view.captions[name]) for name, content in view.pictures.items()),
            "<h2>How it was made</h2>",
            facts_table(facts),
        ],
    )
