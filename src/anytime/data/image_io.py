"""One picture file to one square of bytes."""

from __future__ import annotations

from io import BufferedReader, BytesIO
from typing import Any

import numpy as np
from jaxtyping import UInt8

from anytime.core.errors import UserError

PREPROCESSING = "centre square, Lanczos"  # what `decode` does; kept arrays made by another rule are not used

Stream = BufferedReader | BytesIO
_GREY = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_Image = Any  # PIL.Image.Image: Pillow is imported only where a picture is read


def header(stream: Stream, filename: str) -> tuple[bool, int]:
    """Whether a picture is stored as grey, and its shorter side; decodes nothing."""
    from PIL import Image

    try:
        with Image.open(stream) as image:
            return image.mode in _GREY, min(image.size)
    except Exception as error:  # see decode
        raise _unreadable(filename, error) from error


def decode(stream: Stream, filename: str, size: int, channels: int) -> tuple[UInt8[np.ndarray, "channel size size"], int]:
    """The picture's centre square at `size`, and how long its shorter side was.

    Resized with Lanczos, which Pillow widens when shrinking, so that nothing aliases; a picture of exactly the size keeps
    its pixels. Of a moving picture the first frame is taken.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(stream) as image:
            image.load()
            flat = _flatten(ImageOps.exif_transpose(image), "L" if channels == 1 else "RGB")
    except Exception as error:  # on broken bytes Pillow's decoders raise a dozen types, SyntaxError and struct.error among them
        raise _unreadable(filename, error) from error
    pixels = np.asarray(_square(flat, size)).reshape(size, size, channels)
    return np.array(pixels.transpose(2, 0, 1), order="C"), min(flat.size)


def _unreadable(filename: str, error: Exception) -> UserError:
    reason = "no known picture format" if "cannot identify" in str(error) else str(error) or type(error).__name__
    return UserError(f"{filename} is not a readable picture ({reason}): remove or replace it")


def _flatten(image: _Image, mode: str) -> _Image:
    """The picture in `mode`, over white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion clips at 255 instead of scaling
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
    return image.convert(mode)


def _square(image: _Image, size: int) -> _Image:
    from PIL import Image

    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    return square if side == size else square.resize((size, size), Image.Resampling.LANCZOS)
