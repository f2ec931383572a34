"""Pictures in and out: grids, labelled rows, PNG and GIF files."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from anytime.data.atomic import replacing
from anytime.data.images import decode
from anytime.data.loader import to_uint8
from anytime.errors import UserError

Pixels = UInt8[np.ndarray, "tall wide colours"]
_PAPER = 255  # white between the pictures
_VISIBLE = 56  # pixels: small pictures are enlarged by a whole factor up to about this width
_TEXT = 13  # pixels


def grid(x: Float[Tensor, "n channel height width"], columns: int | None = None, gap: int = 2, scale: int = 1) -> Pixels:
    """The pictures row by row on white, in a square unless `columns` says otherwise."""
    columns = columns or max(1, math.ceil(math.sqrt(len(x))))
    rows = max(1, math.ceil(len(x) / columns))
    tiles = _tiles(x, scale)
    _, height, width, channel = tiles.shape
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, channel), _PAPER, np.uint8)
    for place, tile in enumerate(tiles):
        top, left = (gap + at * (side + gap) for at, side in zip(divmod(place, columns), (height, width), strict=True))
        sheet[top : top + height, left : left + width] = tile
    return sheet


def _tiles(x: Float[Tensor, "n channel height width"], scale: int) -> UInt8[np.ndarray, "n tall wide channel"]:
    tiles = to_uint8(x.detach().cpu().float()).permute(0, 2, 3, 1).numpy()
    return tiles.repeat(scale, axis=1).repeat(scale, axis=2)


def labelled_rows(
    rows: Sequence[tuple[str, Float[Tensor, "_ channel height width"]]], scale: int | None = None, gap: int = 2
) -> Pixels:
    """One strip of pictures for each row, its label at the left; small pictures are enlarged so that they can be seen.

    Without Pillow the labels are left out: a training run on a bare machine still shows its rows.
    """
    strips = [grid(x, len(x), gap, scale or max(1, _VISIBLE // x.shape[-1])) for _, x in rows]
    font = _font()
    margin = 0 if font is None else 4 * gap + math.ceil(max(font.getlength(label) for label, _ in rows))
    sheet = np.full((sum(map(len, strips)), margin + max(strip.shape[1] for strip in strips), 3), _PAPER, np.uint8)
    bands = np.split(sheet, np.cumsum([len(strip) for strip in strips])[:-1])  # views: filling them fills the sheet
    for (label, _), strip, band in zip(rows, strips, bands, strict=True):
        band[:, margin : margin + strip.shape[1]] = strip
        if font is not None:
            band[:, :margin] = _written(label, font, len(strip), margin)
    return sheet


def _font() -> Any | None:
    """Pillow's built-in font, or None where there is no Pillow."""
    try:
        from PIL import ImageFont

        return ImageFont.load_default(_TEXT)
    except ImportError:
        return None


def _written(label: str, font: Any, tall: int, wide: int) -> Pixels:
    from PIL import Image, ImageDraw

    paper = Image.new("RGB", (wide, tall), "white")
    ImageDraw.Draw(paper).text((wide / 2, tall / 2), label, "black", font, anchor="mm")
    return np.asarray(paper)


def _plane(pixels: Pixels) -> UInt8[np.ndarray, "tall wide ..."]:
    """Pillow wants grey pictures without a channel axis."""
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def png_bytes(pixels: Pixels) -> bytes:
    """A PNG file, grey or in colour. Written by hand: a training run writes its samples where there is no Pillow."""
    height, width, channel = pixels.shape
    kind = {1: 0, 3: 2}[channel]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # each after filter type 0
    chunks = (
        (b"IHDR", struct.pack(">2I5B", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    body = (struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def write_png(path: Path, pixels: Pixels) -> None:
    """Write a PNG file, whole or not at all."""
    content = png_bytes(pixels)
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_gif(path: Path, frames: Sequence[Pixels], seconds_per_frame: float) -> None:
    """Write an endless GIF; the format counts in hundredths of a second."""
    from PIL import Image

    first, *others = (Image.fromarray(_plane(frame)) for frame in frames)
    duration = max(20, 10 * round(100 * seconds_per_frame))  # milliseconds: browsers slow down anything faster
    try:
        with replacing(path) as partial:
            first.save(partial, "GIF", save_all=True, append_images=others, duration=duration, loop=0)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written ({error.strerror or error}): choose another --out or make room")


def read_image(path: Path, channels: int, size: int) -> UInt8[Tensor, "channel size size"]:
    """A picture file's centre square at `size`, enlarged where it is smaller."""
    try:
        with path.open("rb") as stream:
            return torch.from_numpy(decode(stream, str(path), size, channels)[0])
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): give the path of a picture") from error
