"""Evaluation of audio models: log-mel and STFT distances, frequency bands, a classifier's features; waveforms and clips."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.core.plots import can_plot, plot_png
from anytime.core.progress import Reporter
from anytime.core.results import Row, column, select
from anytime.data import Dataset
from anytime.data.audio_io import SAMPLE_RATE, wav_bytes, write_wav
from anytime.data.image_grid import labelled_rows, png_bytes
from anytime.data.loader import to_float
from anytime.data.recordings import CROP
from anytime.evaluation.classifier_training import MIN_DIGIT_ACCURACY
from anytime.evaluation.evaluate import Adapter, Workspace
from anytime.evaluation.summary import Summary, Table, bits_figure, codes_note, curves, new_figure, plot_series, warning_notes
from anytime.metrics.audio import BANDS, audio_error_by_codes, codes_to_half_error
from anytime.metrics.quality import distance_name
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

AUDIO_SAMPLES, AUDIO_FRACTIONS = 5000, (0.0625, 0.25, 0.5, 1.0)
"""The fractions are the paper's 1/16, 1/4 and 1, and a half."""
AUDIO_ERROR_EXAMPLES = 500  # held-out crops for the errors at every code count, evenly spread over the speakers
CLIP_FRACTIONS, CLIPS = (0.0625, 0.25, 1.0), 30
"""Samples written as WAV files: 30 at each of the paper's fractions."""
PANEL_CLIPS = 4
ENVELOPE_BINS = 240  # of a plotted waveform: 64 samples each
_SCALE = 1000
CAPTIONS = {
    "waveforms": "The same samples from fewer and more codes.",
    "spectrograms": "Spectrograms of samples from fewer and more codes; low frequencies at the bottom.",
    "reconstructions": "Held-out clips and their reconstructions from fewer and more codes.",
    "distances": "Log-mel and multi-resolution STFT distance of held-out reconstructions by code count.",
    "bands": "Error of held-out reconstructions by frequency band, relative to the band's energy: 1 is as good as silence.",
    "features": "Distance to the training set on the classifier's features, and classified digits; dashed: held-out clips.",
    "bits": "Bits of each held-out code under the prior; dashed: a uniform prior.",
    "speed": "Real-time factor of one clip by code count.",
}

ClipsByFraction = Mapping[float, Float[Tensor, "n 1 time"]]


@dataclass(frozen=True)
class AudioEvaluation(Adapter):
    """What `evaluate` needs to measure an audio model."""

    latency_batch: ClassVar[int] = 1

    def error_rows(self, workspace: Workspace) -> list[Row]:
        """Return the distances of reconstructions by code count, and the counts that halve each band's error."""
        errors = error_rows(self.model, self.dataset, workspace.reporter)
        return errors + half_error_rows(errors)

    def summary(self, rows: Sequence[Row], folder: Path) -> Summary:
        """Return table, notes, figures and players; 90 clips are written to the folder, named by fraction."""
        codes = self.model.sample(CLIPS, seed=self.settings.seed, temperature=self.settings.temperature).codes
        clips = decode_fractions(self.model, codes)
        write_clips(folder / "audio", clips)
        images = {**self.figures(clips), **curves(rows, PLOTS)}
        return Summary([main_table(rows)], notes(rows, smoke=self.settings.smoke), images, CAPTIONS, audio_players(clips))

    def figures(self, clips: ClipsByFraction) -> dict[str, bytes]:
        """Return PNG files: samples as waveforms (with matplotlib) and spectrograms, and reconstructions."""
        model = self.model
        labels = {f: f"{code_count(model.length, fraction=f)} of {model.length} codes" for f in clips}
        held_out = to_float(self.dataset.held_out[: 2 * PANEL_CLIPS])
        back = decode_fractions(model, model.encode(held_out), tuple(clips))
        found = {
            "spectrograms": spectrograms([(labels[f], x) for f, x in clips.items()]),
            "reconstructions": spectrograms([("data", held_out), *((labels[f], x) for f, x in back.items())]),
        }
        if not can_plot():
            return found
        figure, every = new_figure(len(clips), PANEL_CLIPS, (3.0 * len(clips), 0.9 * PANEL_CLIPS + 0.4))
        for axes, (row, (fraction, x)) in zip(every, product(range(PANEL_CLIPS), clips.items()), strict=True):
            draw_envelope(axes, envelope(x[row]))
            if row == 0:
                axes.set_title(labels[fraction], fontsize="small")
        return {"waveforms": plot_png(figure), **found}


def error_rows(model: AnytimeModel, dataset: Dataset, reporter: Reporter, examples: int = AUDIO_ERROR_EXAMPLES) -> list[Row]:
    """Distances of held-out reconstructions from 0, 1, …, length codes."""
    x = dataset.held_out
    if len(x) > examples:  # evenly spaced, as the clips of a speaker follow each other
        x = x[torch.linspace(0, len(x) - 1, examples).long()]
    reporter.stage("errors", 0, len(x))
    errors = audio_error_by_codes(model, x, range(model.length + 1), lambda done: reporter.progress(done, {}))
    return [
        {"series": "error", "fraction": error.codes / model.length, **asdict(error), "examples": len(x)} for error in errors
    ]


def half_error_rows(errors: Sequence[Row]) -> list[Row]:
    """The code count that halves the error of each band."""
    return [{"series": "half-way", "band": band, "codes": codes_to_half_error(column(errors, band))} for band in BANDS]


def decode_fractions(
    model: AnytimeModel, codes: Int[Tensor, "n length"], fractions: Sequence[float] = CLIP_FRACTIONS
) -> dict[float, Float[Tensor, "n 1 time"]]:
    """Decode the same codes from each fraction of them."""
    return {f: model.decode(codes[:, : code_count(model.length, fraction=f)]).cpu() for f in fractions}


def envelope(x: Float[Tensor, "1 time"]) -> str:
    """Return the minimum and maximum of each bin of a waveform, in thousandths, as text.

    >>> import torch
    >>> envelope(torch.tensor([[0.5, -0.5] * 480]))[:17]
    '-500 500 -500 500'
    """
    bins = x[0].unflatten(0, (ENVELOPE_BINS, -1)) if x.shape[1] % ENVELOPE_BINS == 0 else x[0][:, None]
    low, high = ((_SCALE * edge).round().int().tolist() for edge in (bins.amin(1), bins.amax(1)))
    return " ".join(f"{a} {b}" for a, b in zip(low, high, strict=True))


def draw_envelope(axes: Any, text: str) -> None:
    """Draw an envelope on matplotlib axes."""
    numbers = [int(word) / _SCALE for word in text.split()]
    axes.fill_between(range(len(numbers) // 2), numbers[::2], numbers[1::2], linewidth=0.3)
    axes.set(ylim=(-1, 1), xlim=(0, len(numbers) // 2))
    axes.set_axis_off()


def spectrograms(rows: Sequence[tuple[str, Float[Tensor, "n 1 time"]]]) -> bytes:
    """Return a PNG file with a row of spectrograms for each label."""
    return png_bytes(labelled_rows([(label, x[: 2 * PANEL_CLIPS]) for label, x in rows], scale=2))


def write_clips(folder: Path, clips: ClipsByFraction) -> None:
    """Write every clip as a WAV file, named by its fraction of the codes: sample-0.0625-03.wav."""
    for fraction, x in clips.items():
        for row, clip in enumerate(x):
            write_wav(folder / f"sample-{fraction}-{row:02d}.wav", clip)


def audio_players(clips: ClipsByFraction) -> str:
    """Return an HTML table of clips to play: a line for each clip, a column for each fraction."""
    head = "".join(f"<th>{html.escape(f'{fraction:g} of the codes')}</th>" for fraction in clips)
    shown = range(min(PANEL_CLIPS, *(len(x) for x in clips.values())))
    encoded = ([base64.b64encode(wav_bytes(x[clip])).decode() for x in clips.values()] for clip in shown)
    player = '<td><audio controls src="data:audio/wav;base64,{}"></audio></td>'
    lines = ["".join(map(player.format, line)) for line in encoded]
    return f"<table><tr>{head}</tr>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def main_table(rows: Sequence[Row]) -> Table:
    """Return the table of metrics, a line for each fraction."""
    name = distance_name(rows)
    digits = ["classified"] if name == "frechet_digits" else []
    errors = {row["codes"]: row for row in select(rows, series="error")}
    body = [
        [
            f"{row['fraction']:g}",
            str(row["codes"]),
            *(f"{errors[row['codes']][value]:.3f}" for value in ("log_mel", "stft", *BANDS)),
            f"{row[name]:.2f}",
            *(f"{row[key]:.1%}" for key in digits),
            f"{speed['real_time_factor']:.4f}",
        ]
        for row, speed in zip(select(rows, series="samples"), select(rows, series="speed"), strict=True)
    ]
    return Table(["fraction", "codes", "log-mel", "stft", *BANDS, name, *digits, "real-time factor"], body)


def notes(rows: Sequence[Row], *, smoke: bool = False) -> list[str]:
    """Return the sentences below the table: how it was measured, reference values, bands, warnings."""
    name = distance_name(rows)
    (data,), sampled = select(rows, series="held-out data"), select(rows, series="samples")
    full, errors = max(sampled, key=lambda row: int(row["codes"])), select(rows, series="error")
    half = {row["band"]: "never" if row["codes"] is None else row["codes"] for row in select(rows, series="half-way")}
    sentences = [
        f"Distances of {errors[0]['examples']:,} held-out crops of {CROP / SAMPLE_RATE:g} s, padding left out.",
        f"{full['samples']:,} samples (seed {full['seed']}, temperature {full['temperature']:g}) against "
        f"{full['reference']:,} training crops on the features of our own classifier; "
        f"held-out clips themselves: {name} {data[name]:.2f}.",
        "Codes that halve the error: " + ", ".join(f"{band} {half[band]}" for band in BANDS) + ".",
        f"Distance to the nearest training example, median: samples {full['nearest']:.2f}, held-out {data['nearest']:.2f}.",
    ]
    if name == "frechet_digits":
        by_digit = ", ".join(f"{digit}: {count}" for digit, count in enumerate(full["by_digit"]))
        weak = "" if data["accuracy"] >= MIN_DIGIT_ACCURACY else f", below {MIN_DIGIT_ACCURACY:.0%}: trust it less"
        sentences += [
            f"The digit classifier has an accuracy of {data['accuracy']:.1%} on {data['accuracy_examples']:,} real digits of "
            f"held-out speakers{weak}; it classifies {data['classified']:.1%} of them with confidence.",
            f"Classified digits from {full['codes']} codes: {by_digit}.",
        ]
    return [*sentences, codes_note(rows, "crop"), *warning_notes(rows, smoke=smoke)]


def _distance_figure(rows: Sequence[Row]) -> Any:
    figure, (mel, stft) = new_figure(2)
    plot_series(mel, rows, "error", "codes", "log_mel", marker=".", ylabel="log-mel, nats")
    plot_series(stft, rows, "error", "codes", "stft", marker=".", ylabel="multi-resolution STFT")
    return figure


def _band_figure(rows: Sequence[Row]) -> Any:
    figure, (axes,) = new_figure(1)
    for band, (low, high) in BANDS.items():
        plot_series(axes, rows, "error", "codes", band, f"{band}: {low}–{high} Hz", marker=".", ylabel="error / energy")
    return figure


def _feature_figure(rows: Sequence[Row]) -> Any:
    values = [distance_name(rows), *(["classified"] if distance_name(rows) == "frechet_digits" else [])]
    figure, every = new_figure(len(values))
    for axes, value in zip(every, values, strict=True):
        for series in ("samples", "reconstructions"):
            plot_series(axes, rows, series, "fraction", value, series, ylabel=value)
        for row in select(rows, series="held-out data"):
            axes.axhline(row[value], linestyle="--", color="grey")
    return figure


def _speed_figure(rows: Sequence[Row]) -> Any:
    figure, (axes,) = new_figure(1)
    engine = select(rows, series="speed")[0]["engine"]
    plot_series(axes, rows, "speed", "codes", "real_time_factor", ylabel=f"real-time factor, {engine}")
    return figure


PLOTS = {
    "distances": _distance_figure, "bands": _band_figure, "features": _feature_figure, "bits": bits_figure,
    "speed": _speed_figure,
}  # fmt: skip
