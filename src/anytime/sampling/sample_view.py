"""Samples to look at: files by suffix, a PNG grid, and HTML with an image grid or audio players for Jupyter."""

from __future__ import annotations

import base64
import html
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from anytime.core.errors import UserError
from anytime.core.storage import write_atomic
from anytime.data.audio_io import wav_bytes, write_wav
from anytime.data.image_grid import Pixels, grid, png_bytes, write_png

if TYPE_CHECKING:
    from anytime.sampling.sample import Sample

MAX_FILES = 1000
"""Largest number of samples written one file each."""
MAX_IMAGES, MAX_PLAYERS = 64, 8
"""Images and audio players that are shown; a caption says how many there are."""
MIN_WIDTH = 56
"""Pixels: smaller images are enlarged by a whole factor, up to about this width."""
SUFFIXES = (".png", ".npz", ".wav", "")
OTHER_FORMATS = (".mp3", ".mp4", ".jp2", ".h5", ".safetensors", ".parquet")
"""Suffixes of files, although they hold a digit or are long; such suffixes else belong to a directory, as in samples-0.7."""
LONGEST_SUFFIX = len(".tiff")


def file_suffix(path: Path) -> str:
    """Return the suffix that decides the format, in lower case; empty for a directory, whose name may have a dot.

    >>> [file_suffix(Path(name)) for name in ("x.PNG", "x.jpg", "samples-0.7", "my.samples")]
    ['.png', '.jpg', '', '']
    """
    suffix = path.suffix.lower()
    if suffix in (*SUFFIXES, ".gif", *OTHER_FORMATS):
        return suffix
    names_a_directory = any(map(str.isdigit, suffix)) or len(suffix) > LONGEST_SUFFIX or path.is_dir()
    return "" if names_a_directory else suffix


def save_sample(sample: Sample, path: str | Path) -> Path:
    """Write a sample in the format of the suffix; return the file or directory. Several .wav files get numbers."""
    from anytime.sampling.sample_file import npz_bytes

    if path == "":
        raise UserError('`path` is empty; name a file, such as "samples.png", or a directory')
    path = Path(path)
    suffix = file_suffix(path)
    if suffix not in SUFFIXES:
        raise UserError(f"`path` {path}: the suffix {path.suffix} is not known; use .png, .npz, .wav or a directory")
    if suffix == ".wav" and not sample.is_audio:
        raise UserError(f"`path` {path}: these samples are images; use .png, .npz or a directory")
    if suffix == "" and len(sample) > MAX_FILES:
        raise UserError(f"`path` {path}: a directory takes up to {MAX_FILES} samples, not {len(sample)}; use .npz")
    try:
        if suffix == ".png":
            write_png(path, grid(sample.data))
        elif suffix == ".npz":
            write_atomic(path, npz_bytes(sample))
        elif suffix == ".wav" and len(sample) == 1:
            write_wav(path, sample.data[0])
        else:
            _write_each(path, sample)
    except OSError as error:
        raise UserError(f"`path` {path} cannot be written ({error.strerror or error}); choose another place") from None
    return path


def _write_each(path: Path, sample: Sample) -> None:
    """Write one file per sample: DIR/x-0000.png, or x-0000.wav beside x.wav."""
    for index, x in enumerate(sample.data):
        if file_suffix(path) == ".wav":
            write_wav(path.with_name(f"{path.stem}-{index:04d}.wav"), x)
        elif sample.is_audio:
            write_wav(path / f"x-{index:04d}.wav", x)
        else:
            write_png(path / f"x-{index:04d}.png", grid(x[None], gap=0))


def pixels(sample: Sample) -> Pixels:
    """Return the first samples as one grid, small images enlarged; audio is shown as spectrograms."""
    shown = sample.data[:MAX_IMAGES]
    scale = 1 if sample.is_audio else max(1, MIN_WIDTH // shown.shape[-1])
    return grid(shown, scale=scale)


def sample_html(sample: Sample) -> str:
    """Return an image grid or audio players, with a caption."""
    shown = min(len(sample), MAX_PLAYERS if sample.is_audio else MAX_IMAGES)
    caption = html.escape(describe(sample)) + (f"; the first {shown} are shown" if shown < len(sample) else "")
    if sample.is_audio:
        players = (f'<audio controls src="{_data_uri("audio/wav", wav_bytes(x))}"></audio>' for x in sample.data[:shown])
        body = "<br>".join(players)
    else:
        body = f'<img alt="{caption}" src="{_data_uri("image/png", png_bytes(pixels(sample)))}">' if shown else ""
    return f'<figure style="margin: 0">{body}<figcaption>{caption}</figcaption></figure>'


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def describe(sample: Sample) -> str:
    """Return a short line: what the samples are, their number of codes, the seed and the time."""
    kind = "audio clip" if sample.is_audio else "image"
    shape = " × ".join(map(str, sample.data.shape[1:]))
    codes = sample.codes.shape[1]
    each = f"{codes} {'code' if codes == 1 else 'codes'}"
    count = f"{len(sample)} {kind}" + ("" if len(sample) == 1 else "s")
    return f"{count} of {shape}, {each}, seed {sample.seed}, {sample.seconds:.3g} s"


def _has_display() -> bool:
    """Return whether a window can be opened. Without a display, viewers on Linux only print errors of their own."""
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def show_sample(sample: Sample) -> None:
    """Show a sample in Jupyter, or else its grid in the image viewer of the desktop."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        importlib.import_module("IPython.display").display(sample)
        return
    from PIL import Image, ImageShow

    image = pixels(sample)
    if not _has_display() or not ImageShow.show(Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)):
        raise UserError('there is no image viewer here; write a file with `save("samples.png")`')
