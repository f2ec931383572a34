"""Grids and labelled rows of images, as PNG and GIF files; audio is shown as spectrograms."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.core.storage import write_atomic
from anytime.data.loader import to_uint8
from anytime.data.spectrogram import spectrogram_images

Pixels = UInt8[np.ndarray, "tall wide colours"]
_BACKGROUND = 255  # white
_MIN_WIDTH = 56  # pixels: small images are enlarged by a whole factor up to about this width
_GAP = 2  # pixels between images
_FONT_SIZE = 13  # pixels


def grid(x: Float[Tensor, "n channel *place"], columns: int | None = None, gap: int = _GAP, scale: int = 1) -> Pixels:
    """Arrange images row by row on white, by default in a square; audio is shown as spectrograms."""
    columns = columns or max(1, math.ceil(math.sqrt(len(x))))
    rows = max(1, math.ceil(len(x) / columns))
    tiles = _tiles(x, scale)
    _, height, width, channel = tiles.shape
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, channel), _BACKGROUND, np.uint8)
    for index, tile in enumerate(tiles):
        top, left = (gap + at * (side + gap) for at, side in zip(divmod(index, columns), (height, width), strict=True))
        sheet[top : top + height, left : left + width] = tile
    return sheet


def _tiles(x: Float[Tensor, "n channel *place"], scale: int) -> UInt8[np.ndarray, "n tall wide channel"]:
    x = x if x.ndim == 4 else spectrogram_images(x)
    tiles = to_uint8(x.detach().cpu().float()).permute(0, 2, 3, 1).numpy()
    return tiles.repeat(scale, axis=1).repeat(scale, axis=2)


def labelled_rows(rows: Sequence[tuple[str, Float[Tensor, "_ channel *place"]]], scale: int | None = None) -> Pixels:
    """Arrange one strip of images for each row, with its label at the left; small images are enlarged."""
    from PIL import Image, ImageDraw, ImageFont

    strips = [grid(x, len(x), _GAP, scale or max(1, _MIN_WIDTH // x.shape[-1])) for _, x in rows]
    font = ImageFont.load_default(_FONT_SIZE)
    margin = 4 * _GAP + math.ceil(max(font.getlength(label) for label, _ in rows))
    sheet = Image.new("RGB", (margin + max(s.shape[1] for s in strips), sum(len(s) for s in strips)), "white")
    draw, top = ImageDraw.Draw(sheet), 0
    for (label, _), strip in zip(rows, strips, strict=True):
        draw.text((margin / 2, top + len(strip) / 2), label, "black", font, anchor="mm")
        sheet.paste(Image.fromarray(_squeeze_grey(strip)), (margin, top))
        top += len(strip)
    return np.array(sheet)


def _squeeze_grey(pixels: Pixels) -> UInt8[np.ndarray, "tall wide ..."]:
    """Remove the channel axis of a grey image, as Pillow expects."""
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def png_bytes(pixels: Pixels) -> bytes:
    """Encode a PNG file, grey or in colour."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(_squeeze_grey(pixels)).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_png(path: Path, pixels: Pixels) -> None:
    """Write a PNG file."""
    write_atomic(path, png_bytes(pixels))


def write_gif(path: Path, frames: Sequence[Pixels], seconds_per_frame: float) -> None:
    """Write a GIF that repeats forever; the format counts in hundredths of a second."""
    from PIL import Image

    first, *others = (Image.fromarray(_squeeze_grey(frame)) for frame in frames)
    duration = max(20, 10 * round(100 * seconds_per_frame))  # milliseconds: browsers slow down anything faster
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=duration, loop=0)
    write_atomic(path, buffer.getvalue())
