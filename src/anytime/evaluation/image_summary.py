"""An evaluation to look at: curves drawn from its rows alone, sample grids by code length, one HTML file with both."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.core.plots import can_plot, plot_png
from anytime.data.image_grid import labelled_rows, png_bytes
from anytime.data.loader import to_float
from anytime.evaluation.evaluate import EvaluationSettings
from anytime.evaluation.html import facts_table, html_page, image, table
from anytime.evaluation.model_card import memorisation_text
from anytime.metrics.code_stats import code_warnings
from anytime.metrics.image_classifier import CONFIDENT
from anytime.metrics.precision_recall import NEAREST
from anytime.metrics.quality import Row
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

Table = tuple[list[str], list[list[str]]]
"""Head and body."""
NEIGHBOUR_LABELS = ("nearest", "second nearest", "third nearest")
GRID_COLUMNS = 16  # pictures in a row of a grid
FID_TOLERANCE = 1.0  # points of FID that the longest samples may be worse than shorter ones
CAPTIONS = {
    "quality": "Distance to the training set, precision and recall by share of the codes; dashed: held-out pictures.",
    "error": "Held-out reconstruction error from the first codes, pixels in [0, 1], and what each code brings.",
    "bits": "Bits of each held-out code under the prior; dashed: what a prior that knows nothing needs.",
    "speed": "Samples a second by number of codes, and the decoder's share of the time.",
    "samples": "The same samples from fewer and more of their codes.",
    "neighbours": "Samples, and of all training pictures those that look most like each, pixel by pixel: whether it copies.",
    "reconstructions": "Held-out pictures and their reconstructions from fewer and more of their codes.",
}


def distance_name(rows: Sequence[Row]) -> str:
    """`fid`, or what stands for it where the network is another."""
    return "fid" if any("fid" in row for row in rows) else "frechet_random"


def grids(model: AnytimeModel, x: UInt8[Tensor, "n channel height width"], settings: EvaluationSettings) -> dict[str, bytes]:
    """PNG files: samples, and reconstructions of x, a row for each fraction of the codes."""
    counts = [code_count(model.length, fraction=fraction) for fraction in settings.fractions]
    pixels = to_float(x[:GRID_COLUMNS])
    sampled_codes = model.sample(GRID_COLUMNS, seed=settings.seed, temperature=settings.temperature).codes
    known = model.encode(pixels)
    labels = [f"{count} of {model.length} codes" for count in counts]
    rows = [[model.decode(codes[:, :count]).cpu() for count in counts] for codes in (sampled_codes, known)]
    sheets = {
        "samples": labelled_rows(list(zip(labels, rows[0], strict=True))),
        "reconstructions": labelled_rows([("data", pixels), *zip(labels, rows[1], strict=True)]),
    }
    return {name: png_bytes(sheet) for name, sheet in sheets.items()}


def neighbour_grid(
    model: AnytimeModel, train: UInt8[Tensor, "n channel height width"], rows: Sequence[Row]
) -> dict[str, bytes]:
    """A PNG file: samples, and below each the training pictures that look most like it."""
    (row,) = rows_of(rows, "neighbours")
    x = model.sample(row["samples"], seed=row["seed"], temperature=row["temperature"]).data[:GRID_COLUMNS].cpu()
    index = torch.tensor(row["nearest"])[:GRID_COLUMNS]
    below = [
        (name, to_float(train[index[:, rank]])) for rank, name in zip(range(index.shape[1]), NEIGHBOUR_LABELS, strict=False)
    ]
    return {"neighbours": png_bytes(labelled_rows([("samples", x), *below]))}


def curves(rows: Sequence[Row]) -> dict[str, bytes]:
    """PNG files by name; none without matplotlib."""
    if not can_plot():
        return {}
    drawings = {"quality": _quality, "error": _error, "bits": draw_bits, "speed": _speed}
    return {name: plot_png(draw(rows)) for name, draw in drawings.items()}


def new_figure(columns: int) -> tuple[Any, list[Any]]:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 2.8), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, columns)))


def rows_of(rows: Sequence[Row], series: str) -> list[Row]:
    return [row for row in rows if row["series"] == series]


def _quality(rows: Sequence[Row]) -> Any:
    figure, (distances, kids, covers) = new_figure(3)
    name, suffix = distance_name(rows), "" if distance_name(rows) == "fid" else "_random"
    for series in ("samples", "reconstructions"):
        own = rows_of(rows, series)
        fractions = [row["fraction"] for row in own]
        distances.plot(fractions, [row[name] for row in own], marker="o", label=series)
        spread = [row[f"kid_sd{suffix}"] for row in own]
        kids.errorbar(fractions, [row[f"kid{suffix}"] for row in own], spread, marker="o", capsize=3, label=series)
    for row in rows_of(rows, "held-out data"):
        distances.axhline(row[name], linestyle="--", color="grey")
        kids.axhline(row[f"kid{suffix}"], linestyle="--", color="grey")
    for part in ("precision", "recall"):
        own = rows_of(rows, "samples")
        covers.plot([row["fraction"] for row in own], [row[part + suffix] for row in own], marker="o", label=part)
    distances.set(xlabel="share of the codes", ylabel="FID" if name == "fid" else name, ylim=(0, None))
    kids.set(xlabel="share of the codes", ylabel=f"KID{suffix.replace('_', ', ')}")
    covers.set(xlabel="share of the codes", ylabel=f"share{suffix.replace('_', ', ')}", ylim=(0, 1))
    for axes in (distances, kids, covers):
        axes.legend()
    return figure


def _error(rows: Sequence[Row]) -> Any:
    figure, (errors, drops) = new_figure(2)
    own = rows_of(rows, "error")
    errors.plot([row["codes"] for row in own], [row["error"] for row in own], marker=".")
    drops.bar([row["codes"] for row in own[1:]], [row["gain"] for row in own[1:]])
    errors.set(xlabel="codes kept", ylabel="mean squared error", ylim=(0, None))
    drops.set(xlabel="code i", ylabel="Δ(i)")
    return figure


def draw_bits(rows: Sequence[Row]) -> Any:
    figure, (axes,) = new_figure(1)
    own = rows_of(rows, "bits")
    axes.plot([row["position"] for row in own], [row["bits"] for row in own], marker=".")
    axes.axhline(math.log2(rows_of(rows, "codes")[0]["codebook_size"]), linestyle="--", color="grey")
    axes.set(xlabel="position", ylabel="bits", ylim=(0, None))
    return figure


def _speed(rows: Sequence[Row]) -> Any:
    figure, (rates, shares) = new_figure(2)
    own = rows_of(rows, "speed")
    counts = [row["codes"] for row in own]
    rates.plot(counts, [row["samples_per_second"] for row in own], marker="o")
    shares.plot(counts, [row["decode_fraction"] for row in own], marker="o")
    rates.set(xlabel="codes", ylabel=f"samples / s, batch {own[0]['batch']}", ylim=(0, None))
    shares.set(xlabel="codes", ylabel="decoder's share", ylim=(0, 1))
    return figure


def lines(rows: Sequence[Row]) -> Table:
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
            rows_of(rows, "samples"), rows_of(rows, "reconstructions"), rows_of(rows, "speed"), strict=True
        )
    ]
    return head, body


def classifier_tables(rows: Sequence[Row]) -> list[Table]:
    """A second table where a classifier was asked: samples by fraction, real pictures last. None where it was not."""
    classified = [*rows_of(rows, "classified"), *rows_of(rows, "classified data")]
    if not classified:
        return []
    head = ["fraction", "codes", "classified", "rarest class", "commonest", "precision", "recall", "frechet_classifier"]
    body = [
        [
            f"{row['fraction']:g}" if "fraction" in row else "data",
            str(row.get("codes", "")),
            f"{row['classified']:.3f}",
            f"{min(row['class_fractions']):.3f}",
            f"{max(row['class_fractions']):.3f}",
            f"{row['precision_classifier']:.3f}",
            f"{row['recall_classifier']:.3f}",
            f"{row['frechet_classifier']:.2f}",
        ]
        for row in classified
    ]
    return [(head, body)]


def _classifier_note(rows: Sequence[Row]) -> list[str]:
    """What the second table was made with."""
    return [
        f"Recognised: above {CONFIDENT} by a classifier that names {row['accuracy']:.2%} of {row['examples']:,} held-out "
        f"images right; {own['samples']:,} samples at temperature {own['temperature']:g}, precision and recall (k = {NEAREST}) "
        f"on its features against {own['reference']:,} held-out images; rarest and commonest class of those recognised."
        for row, own in zip(rows_of(rows, "classifier"), rows_of(rows, "classified"), strict=False)
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """What belongs beside the table: warnings of its rows, the yardstick, the codes."""
    name = distance_name(rows)
    (data,), (codes,), sampled = rows_of(rows, "held-out data"), rows_of(rows, "codes"), rows_of(rows, "samples")
    (near,), (copy,), first = rows_of(rows, "neighbours"), rows_of(rows, "memorisation"), sampled[0]
    errors, entropy = [row["error"] for row in rows_of(rows, "error")], [row["entropy"] for row in rows_of(rows, "bits")]
    warnings = dict.fromkeys(f"{row['series']}: {row['warning']}" for row in rows if "warning" in row)
    return [
        f"{first['samples']:,} samples (seed {first['seed']}, temperature {first['temperature']:g}) against "
        f"{first['reference']:,} training pictures, network {first['network']}; "
        f"precision and recall from {first['kept']:,} features.",
        f"{data['samples']:,} held-out pictures themselves: {name} {data[name]:.2f}.",
        f"{codes['bits_per_code']:.3f} bits a held-out code, {codes['bits']:.1f} an example; "
        f"{codes['used']} of {codes['codebook_size']} codebook entries used, perplexity {codes['perplexity']:.0f}.",
        *_classifier_note(rows),
        f"The training picture nearest to a sample is {near['distance']:.3f} away, that nearest to a held-out picture "
        f"{near['held_out_distance']:.3f} (medians of {near['samples']}, root mean square of pixels in [0, 1]).",
        memorisation_text(copy),
        *(f"Warning, {text}." for text in [*warnings, *code_warnings(errors, entropy), *_length_warnings(sampled, name)]),
    ]


def _length_warnings(sampled: Sequence[Row], name: str) -> list[str]:
    """Whether some length beats a longer one: the prior's errors then cost more than its codes bring."""
    ordered = sorted(sampled, key=lambda row: int(row["codes"]))
    best, last = min(ordered, key=lambda row: float(row[name])), ordered[-1]
    if name != "fid" or best[name] >= last[name] - FID_TOLERANCE:
        return []
    return [
        f"samples: more codes make them worse, {name} {best[name]:.2f} at {best['codes']} codes and "
        f"{last[name]:.2f} at {last['codes']}"
    ]


@dataclass(frozen=True, slots=True)
class ReportContent:
    """What is shown of an evaluation."""

    tables: Sequence[Table]
    notes: list[str]
    images: Mapping[str, bytes]  # PNG files by name
    captions: Mapping[str, str]
    audio_players: str = ""  # of sounds, as HTML


def report(title: str, view: ReportContent, facts: Mapping[str, str]) -> str:
    """The HTML file: tables, sounds, grids, curves, how it was made."""
    missing = [] if can_plot() else ["<p>Curves need matplotlib (the extra <code>plots</code>).</p>"]
    return html_page(
        title,
        [
            *(table(head, body) for head, body in view.tables),
            *(f"<p>{html.escape(note)}</p>" for note in view.notes),
            view.audio_players,
            *missing,
            *(image("png", content, view.captions[name]) for name, content in view.images.items()),
            "<h2>How it was made</h2>",
            facts_table(facts),
        ],
    )
