"""Image files: one file to a square of bytes, and many files to one array that is cached.

Images deeper than 8 bits are scaled by their range, see `value_range`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from anytime.core.errors import UserError, reason, warn
from anytime.core.progress import track
from anytime.core.storage import atomic_path
from anytime.data.files import BadFileError, DataFile, ReadableFile, decoded_path, local_file

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
MAX_PIXELS = 50_000_000
"""The most pixels of an image that is decoded: any of them then takes less than 1 s and 1 GB."""
PREPROCESSING = "centre square, Lanczos, deep images scaled by their range"
"""What `decode` does; arrays cached by another rule are not used."""
_MAGIC_NUMBERS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")  # of Pillow's forty: some run other programs on a file
_LARGE_PIXELS, _LARGE_LOCK = 1 << 24, threading.Lock()  # images above this are decoded one at a time, or memory runs out
_DEPTHS = (255, 4_095, 65_535)  # the largest values of 8, 12 and 16 bits
_GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_BLOCK = 128  # images that a thread takes at a time, and rows that are scaled at a time
_Image = Any  # PIL.Image.Image: Pillow is imported only where an image is read


class RangeWarning(UserWarning):
    """An image deeper than 8 bits was scaled by a guess."""


def is_image(head: bytes) -> bool:
    """Return whether a file that begins with these 12 bytes is an image."""
    return head.startswith(_MAGIC_NUMBERS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def read_image(path: Path, channels: int, size: int) -> UInt8[Tensor, "channel size size"]:
    """Read the centre square of an image file at `size`, enlarged if the image is smaller."""
    decoded = decode(local_file(path), size, channels)
    _warn_of_ranges([local_file(path)], [decoded.range_note])
    return torch.from_numpy(decoded.pixels)


def header(file: ReadableFile) -> tuple[bool, int]:
    """Return whether an image is stored as grey, and its shorter side, without decoding it."""
    with _open(file) as image:
        return image.mode in _GREY_MODES, min(image.size)


def size_and_mode(file: DataFile) -> tuple[int, int, str]:
    """Return the width, the height and Pillow's mode of an image, such as RGB, without decoding it.

    What Pillow's mode hides is added: `RGB;16` has colours of 16 bits, `RGB;transparent` a colour that is transparent.
    """
    with _open(file) as image:
        notes = (";16" * (image.mode == "RGB" and ";16" in _rawmodes(image)), ";transparent" * ("transparency" in image.info))
        return image.width, image.height, image.mode + "".join(notes)


def has_several_frames(file: DataFile) -> bool:
    """Return whether a file is an animation or has several pages; a photo with previews (MPO) is one image."""
    with _open(file) as image:
        return image.format != "MPO" and bool(getattr(image, "is_animated", False))


@dataclass(frozen=True, slots=True)
class Decoded:
    """The centre square of an image."""

    pixels: UInt8[np.ndarray, "channel size size"]
    side: int
    """length of the shorter side of the original"""
    range_note: str
    """how the range of a deep image was guessed; empty if nothing was guessed"""


def decode(file: ReadableFile, size: int, channels: int) -> Decoded:
    """Return the centre square of an image at `size`.

    Pillow widens the Lanczos filter when shrinking, so nothing aliases. An image of exactly `size` keeps its pixels.
    An animation yields its first frame.
    """
    from PIL import Image, ImageOps

    with _open(file) as image, _LARGE_LOCK if image.width * image.height > _LARGE_PIXELS else nullcontext():
        rawmodes = _rawmodes(image)
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        square = _centre_square(image)
        flat, note = _flatten(square, rawmodes, "L" if channels == 1 else "RGB")
        side = flat.width
        flat = flat if side == size else flat.resize((size, size), Image.Resampling.LANCZOS)
    pixels = np.asarray(flat).reshape(size, size, channels)
    return Decoded(np.array(pixels.transpose(2, 0, 1), order="C"), side, note)


@contextmanager
def _open(file: ReadableFile) -> Iterator[_Image]:
    from PIL import Image

    too_large = f"{file.path} has more than {MAX_PIXELS:,} pixels: shrink it or remove it"
    with file.open() as stream:
        try:
            with Image.open(stream, formats=_FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise BadFileError(too_large)
                yield image
        except UserError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise BadFileError(too_large) from None
        except Exception as error:  # on broken bytes Pillow raises a dozen types, SyntaxError and struct.error among them
            cause = "unknown image format" if "cannot identify" in str(error) else reason(error)
            raise BadFileError(f"{file.path} is not a readable image ({cause}): remove or replace it") from error


def _rawmodes(image: _Image) -> str:
    """Return how the pixels are stored in the file, such as RGB;16B; Pillow forgets it when it decodes them."""
    return " ".join(str(tile[3]) for tile in image.tile)


def _centre_square(image: _Image) -> _Image:
    side = min(image.size)
    left, top = ((extent - side) // 2 for extent in image.size)
    return image if image.width == image.height else image.crop((left, top, left + side, top + side))


def _flatten(image: _Image, rawmodes: str, mode: str) -> tuple[_Image, str]:
    """Convert to `mode`, with transparent pixels over white; return a note if a range was guessed."""
    from PIL import Image

    note = ""
    if image.mode == "F" or image.mode.startswith("I"):  # Pillow's own conversion clips at 255 instead of scaling
        image, note = _eight_bits(image)
    elif re.search(";16[BLN]", rawmodes) and max(high for _, high in _extrema(image)) in range(1, 16):
        note = "has colours of 16 bits but uses the lowest 12 at most, and becomes almost black: convert it to 8 bits"
    if image.has_transparency_data:
        colours = image if image.mode == "RGBA" else image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
    return image if image.mode == mode else image.convert(mode), note


def _extrema(image: _Image) -> list[tuple[int, int]]:
    """Return the smallest and the largest value of every colour, without transparency."""
    found = image.getextrema()
    return [found] if isinstance(found[0], int) else [*found][: 3 if image.mode.startswith("RGB") else 1]


def _eight_bits(image: _Image) -> tuple[_Image, str]:
    """Scale a grey image of 16 or 32 bits, or of floats, to 8 bits."""
    from PIL import Image

    values = np.asarray(image)
    low, high, note = value_range(values)
    scaled = np.empty(values.shape, np.uint8)
    for start in range(0, len(values), _BLOCK):  # in blocks: float64 takes eight times the memory of the result
        part = values[start : start + _BLOCK].astype(np.float64)
        scaled[start : start + _BLOCK] = ((part - low) * (255 / (high - low))).round().clip(0, 255)
    return Image.fromarray(scaled), note


def value_range(values: Integer[np.ndarray, "*shape"] | Float[np.ndarray, "*shape"]) -> tuple[float, float, str]:
    """Return the values that become black and white, and a note if they are a guess.

    - Floats in [0, 1]: 0 and 1.
    - Integers above 4,095 and up to 65,535: 0 and 65,535, as 16 bits are.
    - Other values that are not negative: 0 and the largest value of 8, 12 or 16 bits, whichever is the first to hold
      them all. This is a guess: a file does not say whether it holds 12 bits or a dark image of 16.
    - Negative and larger values: the smallest and the largest of the image, also a guess.

    >>> value_range(np.array([0, 40_000]))
    (0.0, 65535.0, '')
    >>> value_range(np.array([0, 3_000]))
    (0.0, 4095.0, 'was scaled as values from 0 to 4,095')
    """
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("it holds values that are not numbers (NaN or infinity)")
    is_float = np.issubdtype(values.dtype, np.floating)
    if (is_float and low >= 0 and high <= 1) or low == high == 0:
        return 0.0, 1.0, ""
    if low < 0 or high > _DEPTHS[-1]:
        low, high = min(low, 0.0), high if high > low else low + 1
        return low, high, f"was scaled as values from {low:,.6g} to {high:,.6g}"
    white = float(next(depth for depth in _DEPTHS if high <= depth))
    is_known = white == _DEPTHS[-1] and not is_float
    return 0.0, white, "" if is_known else f"was scaled as values from 0 to {white:,.0f}"


def read_images(
    files: Sequence[DataFile], size: int, cache: Path, channels: int | None = None
) -> UInt8[Tensor, "n channel size size"]:
    """Read all images at `size`, from the cached array if there is one.

    Without `channels` the result is grey if every file is stored as grey: comparing pixels would decode all files twice.
    """
    path = decoded_path(cache, f"{PREPROCESSING}\n{size} {channels}", files, ".npy")
    pixels = _load_cached(path, len(files), size)
    if pixels is None:
        pixels = _decode_all(files, size, _count_channels(files, size) if channels is None else channels)
        with suppress(OSError), atomic_path(path) as partial, partial.open("wb") as stream:
            np.save(stream, pixels)  # without a writable cache the next start decodes again, nothing else
    return torch.from_numpy(pixels)


def _load_cached(path: Path, count: int, size: int) -> UInt8[np.ndarray, "n channel size size"] | None:
    """Map the cached array copy-on-write, because torch requires writable memory."""
    try:
        array = np.lib.format.open_memmap(path, mode="c")  # not np.load, which opens other formats too
    except Exception:  # a damaged array raises a dozen types, and is decoded again
        return None
    is_valid = array.dtype == np.uint8 and array.ndim == 4 and (len(array), *array.shape[2:]) == (count, size, size)
    return array if is_valid else None


def _count_channels(files: Sequence[DataFile], size: int) -> int:
    """Return 1 if all images are grey, else 3; refuse images smaller than `size` before any is decoded."""
    grey, sides = zip(*(header(file) for file in track(files, len(files), "reading image headers")), strict=True)
    _refuse_small(files, sides, size)
    return 1 if all(grey) else 3


def _refuse_small(files: Sequence[DataFile], sides: Sequence[int], size: int) -> None:
    if small := [file for file, side in zip(files, sides, strict=True) if side < size]:
        others = f" and {len(small) - 1:,} more are" if len(small) > 1 else " is"
        raise UserError(f"{small[0].path}{others} smaller than {size} x {size}: choose a smaller `size` or remove them")


def _decode_all(files: Sequence[DataFile], size: int, channels: int) -> UInt8[np.ndarray, "n channel size size"]:
    """Decode in threads into one array: Pillow decodes without holding the interpreter's lock."""
    pixels = np.empty((len(files), channels, size, size), np.uint8)

    def fill(start: int) -> list[tuple[int, str]]:
        rows = []
        for row, file in enumerate(files[start : start + _BLOCK], start):
            decoded = decode(file, size, channels)
            pixels[row] = decoded.pixels
            rows.append((decoded.side, decoded.range_note))
        return rows

    starts = range(0, len(files), _BLOCK)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        blocks = track(pool.map(fill, starts), len(starts), "decoding images")
        sides, notes = zip(*(row for rows in blocks for row in rows), strict=True)
    _refuse_small(files, sides, size)
    _warn_of_ranges(files, notes)
    return pixels


def _warn_of_ranges(files: Sequence[DataFile], notes: Sequence[str]) -> None:
    """Warn of the first image whose range was guessed, and say how many others there are."""
    guessed = [(file.path, note) for file, note in zip(files, notes, strict=True) if note]
    if guessed:
        path, note = guessed[0]
        others = f" ({len(guessed) - 1:,} more images have such a guess)" if len(guessed) > 1 else ""
        warn(f"{path} {note}{others}", RangeWarning)
