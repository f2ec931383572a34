"""Sounds to look at, by share of their codes: waveforms as the paper prints them, and spectrograms; and files to listen to."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int, Int16
from torch import Tensor

from anytime.core.plots import can_plot, plot_png
from anytime.data.audio_io import wav_bytes, write_wav
from anytime.data.image_grid import labelled_rows, png_bytes
from anytime.data.loader import to_float
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

FRACTIONS = (0.0625, 0.25, 1.0)
"""The paper's."""
CLIPS = 30
"""Of each fraction, so that there are 90 files."""
PANEL_CLIPS = 4  # clips of a panel
COLUMNS = 240  # places along the time of an envelope: 64 samples each
_SCALE = 1000


def by_fraction(
    model: AnytimeModel, codes: Int[Tensor, "n length"], fractions: Sequence[float] = FRACTIONS
) -> dict[float, Float[Tensor, "n 1 time"]]:
    """The same codes decoded from each fraction of them."""
    return {f: model.decode(codes[:, : code_count(model.length, fraction=f)]).cpu() for f in fractions}


def envelope(x: Float[Tensor, "1 time"]) -> str:
    """A waveform as it looks from afar: the least and the greatest sample of each place, in thousandths, as words.

    >>> import torch
    >>> envelope(torch.tensor([[0.5, -0.5] * 480]))[:17]
    '-500 500 -500 500'
    """
    bins = x[0].unflatten(0, (COLUMNS, -1)) if x.shape[1] % COLUMNS == 0 else x[0][:, None]
    low, high = ((_SCALE * edge).round().int().tolist() for edge in (bins.amin(1), bins.amax(1)))
    return " ".join(f"{a} {b}" for a, b in zip(low, high, strict=True))


def draw_envelope(axes: Any, values_text: str) -> None:
    """An envelope on matplotlib axes."""
    numbers = [int(word) / _SCALE for word in values_text.split()]
    axes.fill_between(range(len(numbers) // 2), numbers[::2], numbers[1::2], linewidth=0.3)
    axes.set(ylim=(-1, 1), xlim=(0, len(numbers) // 2))
    axes.set_axis_off()


def waveform_figure(columns: Mapping[str, Sequence[str]], title: str = "") -> Any:
    """Waveforms, a column for each title and a row for each clip, like the paper's figure."""
    import matplotlib.figure

    rows = max(len(clips) for clips in columns.values())
    figure = matplotlib.figure.Figure(figsize=(3 * len(columns), 0.9 * rows + 0.4), layout="constrained")
    every = figure.subplots(rows, len(columns), squeeze=False)
    for column, (name, clips) in enumerate(columns.items()):
        every[0][column].set_title(name, fontsize="small")
        for row, values_text in enumerate(clips):
            draw_envelope(every[row][column], values_text)
    if title:
        figure.suptitle(title)
    return figure


def audio_figures(
    model: AnytimeModel, x: Int16[Tensor, "held_out 1 time"], clips_by_fraction: dict[float, Float[Tensor, "n 1 time"]]
) -> dict[str, bytes]:
    """PNG files by name: samples as waveforms and as spectrograms, and reconstructions of x. Waveforms need matplotlib."""
    labels = {f: f"{code_count(model.length, fraction=f)} of {model.length} codes" for f in clips_by_fraction}
    held_out = to_float(x[: 2 * PANEL_CLIPS])
    back = by_fraction(model, model.encode(held_out), tuple(clips_by_fraction))
    found = {
        "spectrograms": spectrograms([(labels[f], clip_batch) for f, clip_batch in clips_by_fraction.items()]),
        "reconstructions": spectrograms([("data", held_out), *((labels[f], clip_batch) for f, clip_batch in back.items())]),
    }
    if can_plot():
        columns = {
            labels[f]: [envelope(clip) for clip in clip_batch[:PANEL_CLIPS]] for f, clip_batch in clips_by_fraction.items()
        }
        found = {"waveforms": plot_png(waveform_figure(columns)), **found}
    return found


def spectrograms(rows: Sequence[tuple[str, Float[Tensor, "n 1 time"]]]) -> bytes:
    """A PNG file with a row of spectrograms for each label."""
    return png_bytes(labelled_rows([(label, x[: 2 * PANEL_CLIPS]) for label, x in rows], scale=2))


def file_name(fraction: float, row: int) -> str:
    """
    >>> file_name(0.0625, 3), file_name(1.0, 29)
    ('sample-0.0625-03.wav', 'sample-1.0-29.wav')
    """
    return f"sample-{fraction}-{row:02d}.wav"


def write_clips(folder: Path, clips_by_fraction: dict[float, Float[Tensor, "n 1 time"]]) -> list[Path]:
    """A WAV file of every sound, named by its fraction of the codes."""
    paths = [
        (folder / file_name(fraction, row), clip_batch)
        for fraction, x in clips_by_fraction.items()
        for row, clip_batch in enumerate(x)
    ]
    for path, clip_batch in paths:
        write_wav(path, clip_batch)
    return [path for path, _ in paths]


def audio_players(clips_by_fraction: dict[float, Float[Tensor, "n 1 time"]]) -> str:
    """A table of sounds to listen to, inside the document: a line for each clip, a column for each fraction."""
    head = "".join(f"<th>{html.escape(f'{fraction:g} of the codes')}</th>" for fraction in clips_by_fraction)
    lines = []
    for clip in range(min(PANEL_CLIPS, *(len(x) for x in clips_by_fraction.values()))):
        cells = "".join(f"<td>{_player(x[clip])}</td>" for x in clips_by_fraction.values())
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><tr>{head}</tr>\n" + "\n".join(lines) + "</table>"


def _player(x: Float[Tensor, "1 time"]) -> str:
    return f'<audio controls src="data:audio/wav;base64,{base64.b64encode(wav_bytes(x)).decode()}"></audio>'
