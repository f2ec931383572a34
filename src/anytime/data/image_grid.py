"""Pictures in and out: grids, labelled rows, PNG and GIF files."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.storage import write_atomic
from anytime.data.image_io import decode
from anytime.data.loader import to_uint8
from anytime.metrics.spectrogram import spectrogram_images

Pixels = UInt8[np.ndarray, "tall wide colours"]
_BACKGROUND = 255  # white between the pictures
_MIN_WIDTH = 56  # pixels: small pictures are enlarged by a whole factor up to about this width
_FONT_SIZE = 13  # pixels


def grid(x: Float[Tensor, "n channel *place"], columns: int | None = None, gap: int = 2, scale: int = 1) -> Pixels:
    """The pictures row by row on white, in a square unless `columns` says otherwise; of waveforms, their spectrograms."""
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


def labelled_rows(
    rows: Sequence[tuple[str, Float[Tensor, "_ channel *place"]]], scale: int | None = None, gap: int = 2
) -> Pixels:
    """One strip of pictures for each row, its label at the left; small pictures are enlarged so that they can be seen."""
    from PIL import Image, ImageDraw, ImageFont

    strips = [grid(x, len(x), gap, scale or max(1, _MIN_WIDTH // x.shape[-1])) for _, x in rows]
    font = ImageFont.load_default(_FONT_SIZE)
    margin = 4 * gap + math.ceil(max(font.getlength(label) for label, _ in rows))
    sheet = Image.new("RGB", (margin + max(s.shape[1] for s in strips), sum(len(s) for s in strips)), "white")
    draw, top = ImageDraw.Draw(sheet), 0
    for (label, _), strip in zip(rows, strips, strict=True):
        draw.text((margin / 2, top + len(strip) / 2), label, "black", font, anchor="mm")
        sheet.paste(Image.fromarray(_squeeze_grey(strip)), (margin, top))
        top += len(strip)
    return np.array(sheet)


def _squeeze_grey(pixels: Pixels) -> UInt8[np.ndarray, "tall wide ..."]:
    """Pillow wants grey pictures without a channel axis."""
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def png_bytes(pixels: Pixels) -> bytes:
    """A PNG file, grey or in colour."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(_squeeze_grey(pixels)).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def gif_bytes(frames: Sequence[Pixels], seconds_per_frame: float) -> bytes:
    """An endless GIF; the format counts in hundredths of a second."""
    from PIL import Image

    first, *others = (Image.fromarray(_squeeze_grey(frame)) for frame in frames)
    duration = max(20, 10 * round(100 * seconds_per_frame))  # milliseconds: browsers slow down anything faster
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=duration, loop=0)
    return buffer.getvalue()


def write_png(path: Path, pixels: Pixels) -> None:
    write_atomic(path, png_bytes(pixels))


def write_gif(path: Path, frames: Sequence[Pixels], seconds_per_frame: float) -> None:
    write_atomic(path, gif_bytes(frames, seconds_per_frame))


def read_image(path: Path, channels: int, size: int) -> UInt8[Tensor, "channel size size"]:
    """A picture file's centre square at `size`, enlarged where it is smaller."""
    try:
        with path.open("rb") as stream:
            return torch.from_numpy(decode(stream, str(path), size, channels)[0])
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): give the path of a picture") from error
