"""An evaluation of a model of sound to look at: curves drawn from its rows alone, its table, and what belongs beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anytime.core.plots import can_plot, plot_png
from anytime.data.audio_io import SAMPLE_RATE
from anytime.data.recordings import CROP
from anytime.evaluation.image_summary import Table, draw_bits, new_figure, rows_of
from anytime.metrics.audio import BANDS
from anytime.metrics.audio_features import MIN_DIGIT_ACCURACY
from anytime.metrics.code_stats import code_warnings
from anytime.metrics.quality import Row

CAPTIONS = {
    "waveforms": "The same samples from fewer and more of their codes.",
    "spectrograms": "Spectrograms of samples from fewer and more of their codes; low frequencies at the bottom.",
    "reconstructions": "Held-out sounds and their reconstructions from fewer and more of their codes.",
    "distances": "Log-mel and multi-resolution STFT distance of held-out reconstructions by number of codes.",
    "bands": "Error of held-out reconstructions by frequency band, as a share of the band's energy: 1 is as good as silence.",
    "features": "Distance to the training set on our own network's features, and recognised digits; dashed: held-out.",
    "bits": "Bits of each held-out code under the prior; dashed: what a prior that knows nothing needs.",
    "speed": "Seconds for each second of one sound, by number of codes.",
}


def distance_name(rows: Sequence[Row]) -> str:
    """`frechet_digits`, or `frechet_sounds` where no digits are spoken."""
    return "frechet_digits" if any("frechet_digits" in row for row in rows) else "frechet_audio"


def curves(rows: Sequence[Row]) -> dict[str, bytes]:
    """PNG files by name; none without matplotlib."""
    if not can_plot():
        return {}
    drawings = {"distances": _distances, "bands": _bands, "features": _feature_distance, "bits": draw_bits, "speed": _speed}
    return {name: plot_png(draw(rows)) for name, draw in drawings.items()}


def _distances(rows: Sequence[Row]) -> Any:
    figure, every = new_figure(2)
    own = rows_of(rows, "error")
    for axes, name, label in zip(every, ("log_mel", "stft"), ("log-mel, nats", "multi-resolution STFT"), strict=True):
        axes.plot([row["codes"] for row in own], [row[name] for row in own], marker=".")
        axes.set(xlabel="codes kept", ylabel=label, ylim=(0, None))
    return figure


def _bands(rows: Sequence[Row]) -> Any:
    figure, (axes,) = new_figure(1)
    own = rows_of(rows, "error")
    for band, (low, high) in BANDS.items():
        axes.plot([row["codes"] for row in own], [row[band] for row in own], marker=".", label=f"{band}: {low}–{high} Hz")
    axes.set(xlabel="codes kept", ylabel="error / energy", ylim=(0, None))
    axes.legend()
    return figure


def _feature_distance(rows: Sequence[Row]) -> Any:
    name = distance_name(rows)
    spoken_digits = name == "frechet_digits"
    figure, every = new_figure(2 if spoken_digits else 1)
    for axes, value in zip(every, (name, "classified"), strict=False):
        for series in ("samples", "reconstructions"):
            own = rows_of(rows, series)
            axes.plot([row["fraction"] for row in own], [row[value] for row in own], marker="o", label=series)
        for row in rows_of(rows, "held-out data"):
            axes.axhline(row[value], linestyle="--", color="grey")
        axes.set(xlabel="share of the codes", ylabel=value, ylim=(0, 1) if value == "classified" else (0, None))
        axes.legend()
    return figure


def _speed(rows: Sequence[Row]) -> Any:
    figure, (axes,) = new_figure(1)
    own = rows_of(rows, "speed")
    axes.plot([row["codes"] for row in own], [row["real_time_factor"] for row in own], marker="o")
    axes.set(xlabel="codes", ylabel=f"real-time factor, {own[0]['engine']}", ylim=(0, None))
    return figure


def lines(rows: Sequence[Row]) -> Table:
    """The main table, head and body: a line for each fraction."""
    name = distance_name(rows)
    spoken_digits = name == "frechet_digits"
    errors = {row["codes"]: row for row in rows_of(rows, "error")}
    head = [
        "fraction",
        "codes",
        "log-mel",
        "stft",
        *BANDS,
        name,
        *(["classified"] if spoken_digits else []),
        "real-time factor",
    ]
    body = [
        [
            f"{row['fraction']:g}",
            str(row["codes"]),
            *(f"{errors[row['codes']][value]:.3f}" for value in ("log_mel", "stft", *BANDS)),
            f"{row[name]:.2f}",
            *([f"{row['classified']:.1%}"] if spoken_digits else []),
            f"{speed['real_time_factor']:.4f}",
        ]
        for row, speed in zip(rows_of(rows, "samples"), rows_of(rows, "speed"), strict=True)
    ]
    return head, body


def notes(rows: Sequence[Row]) -> list[str]:
    """What belongs beside the table: the yardstick, the bands, diversity, the codes."""
    name = distance_name(rows)
    (data,), (codes,), sampled = rows_of(rows, "held-out data"), rows_of(rows, "codes"), rows_of(rows, "samples")
    full, errors = max(sampled, key=lambda row: int(row["codes"])), rows_of(rows, "error")
    half = {row["band"]: row["codes"] for row in rows_of(rows, "half-way")}
    sentences = [
        f"Distances of {errors[0]['examples']:,} held-out crops of {CROP / SAMPLE_RATE:g} s, padding left out.",
        f"{full['samples']:,} samples (seed {full['seed']}, temperature {full['temperature']:g}) against "
        f"{full['reference']:,} training crops on our own network's features; "
        f"held-out sounds themselves: {name} {data[name]:.2f}.",
        "Codes that halve the error: " + ", ".join(f"{band} {_number(half[band])}" for band in BANDS) + ".",
        f"Distance to the nearest training example, median: samples {full['nearest']:.2f}, held-out {data['nearest']:.2f}.",
    ]
    if name == "frechet_digits":
        by_digit = ", ".join(f"{digit}: {count}" for digit, count in enumerate(full["by_digit"]))
        believed = (
            "" if data["accuracy"] >= MIN_DIGIT_ACCURACY else f", below the {MIN_DIGIT_ACCURACY:.0%} from which it is believed"
        )
        sentences += [
            f"The recogniser hears {data['accuracy']:.1%} of {data['accuracy_examples']:,} real digits of unheard voices "
            f"right{believed}, and is sure of {data['classified']:.1%} of them.",
            f"Digits recognised from {full['codes']} codes: {by_digit}.",
        ]
    sentences.append(
        f"{codes['bits_per_code']:.3f} bits a held-out code, {codes['bits']:.1f} a crop; "
        f"{codes['used']} of {codes['codebook_size']} codebook entries used, perplexity {codes['perplexity']:.0f}."
    )
    warnings = dict.fromkeys(f"{row['series']}: {row['warning']}" for row in rows if "warning" in row)
    disorder = code_warnings([row["error"] for row in errors], [row["entropy"] for row in rows_of(rows, "bits")])
    return [*sentences, *(f"Warning, {text}." for text in [*warnings, *disorder])]


def _number(codes: int | None) -> str:
    return "never" if codes is None else str(codes)
