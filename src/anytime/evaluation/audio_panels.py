"""Sounds to look at, by share of their codes: waveforms as the paper prints them, and spectrograms; and files to listen to."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int, Int16
from torch import Tensor

from anytime.data.image_grid import labelled_rows, png_bytes
from anytime.data.loader import to_float
from anytime.data.wav import wav_bytes, write_wav
from anytime.evaluation.html import can_plot, plot_png
from anytime.model import AnytimeModel
from anytime.sampling.budget import code_count

FRACTIONS = (0.0625, 0.25, 1.0)
"""The paper's."""
CLIPS = 30
"""Of each fraction, so that there are 90 files."""
SHOWN = 4  # clips of a panel
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
    places = x[0].unflatten(0, (COLUMNS, -1)) if x.shape[1] % COLUMNS == 0 else x[0][:, None]
    low, high = ((_SCALE * edge).round().int().tolist() for edge in (places.amin(1), places.amax(1)))
    return " ".join(f"{a} {b}" for a, b in zip(low, high, strict=True))


def draw_envelope(axes: Any, words: str) -> None:
    """An envelope on matplotlib axes."""
    numbers = [int(word) / _SCALE for word in words.split()]
    axes.fill_between(range(len(numbers) // 2), numbers[::2], numbers[1::2], linewidth=0.3)
    axes.set(ylim=(-1, 1), xlim=(0, len(numbers) // 2))
    axes.set_axis_off()


def wave_figure(columns: Mapping[str, Sequence[str]], title: str = "") -> Any:
    """Waveforms, a column for each title and a row for each clip, like the paper's figure."""
    import matplotlib.figure

    rows = max(len(clips) for clips in columns.values())
    figure = matplotlib.figure.Figure(figsize=(3 * len(columns), 0.9 * rows + 0.4), layout="constrained")
    every = figure.subplots(rows, len(columns), squeeze=False)
    for column, (name, clips) in enumerate(columns.items()):
        every[0][column].set_title(name, fontsize="small")
        for row, words in enumerate(clips):
            draw_envelope(every[row][column], words)
    if title:
        figure.suptitle(title)
    return figure


def sheets(
    model: AnytimeModel, x: Int16[Tensor, "held_out 1 time"], sounds: dict[float, Float[Tensor, "n 1 time"]]
) -> dict[str, bytes]:
    """PNG files by name: samples as waveforms and as spectrograms, and reconstructions of x. Waveforms need matplotlib."""
    labels = {f: f"{code_count(model.length, fraction=f)} of {model.length} codes" for f in sounds}
    heard = to_float(x[: 2 * SHOWN])
    back = by_fraction(model, model.encode(heard), tuple(sounds))
    found = {
        "spectrograms": spectrograms([(labels[f], wave) for f, wave in sounds.items()]),
        "reconstructions": spectrograms([("data", heard), *((labels[f], wave) for f, wave in back.items())]),
    }
    if can_plot():
        columns = {labels[f]: [envelope(clip) for clip in wave[:SHOWN]] for f, wave in sounds.items()}
        found = {"waveforms": plot_png(wave_figure(columns)), **found}
    return found


def spectrograms(rows: Sequence[tuple[str, Float[Tensor, "n 1 time"]]]) -> bytes:
    """A PNG file with a row of spectrograms for each label."""
    return png_bytes(labelled_rows([(label, x[: 2 * SHOWN]) for label, x in rows], scale=2))


def file_name(fraction: float, row: int) -> str:
    """
    >>> file_name(0.0625, 3), file_name(1.0, 29)
    ('sample-0.0625-03.wav', 'sample-1.0-29.wav')
    """
    return f"sample-{fraction}-{row:02d}.wav"


def write_sounds(folder: Path, sounds: dict[float, Float[Tensor, "n 1 time"]]) -> list[Path]:
    """A WAV file of every sound, named by its fraction of the codes."""
    paths = [(folder / file_name(fraction, row), wave) for fraction, x in sounds.items() for row, wave in enumerate(x)]
    for path, wave in paths:
        write_wav(path, wave)
    return [path for path, _ in paths]


def players(sounds: dict[float, Float[Tensor, "n 1 time"]]) -> str:
    """A table of sounds to listen to, inside the document: a line for each clip, a column for each fraction."""
    head = "".join(f"<th>{html.escape(f'{fraction:g} of the codes')}</th>" for fraction in sounds)
    lines = []
    for clip in range(min(SHOWN, *(len(x) for x in sounds.values()))):
        cells = "".join(f"<td>{_player(x[clip])}</td>" for x in sounds.values())
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><tr>{head}</tr>\n" + "\n".join(lines) + "</table>"


def _player(x: Float[Tensor, "1 time"]) -> str:
    return f'<audio controls src="data:audio/wav;base64,{base64.b64encode(wav_bytes(x)).decode()}"></audio>'
