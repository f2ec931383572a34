"""Image files: one file to a square of bytes, and many files to one array that is cached."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.progress import track
from anytime.core.storage import atomic_path
from anytime.data.files import DataFile, decoded_path, local_file

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
PREPROCESSING = "centre square, Lanczos"  # what `decode` does; arrays cached by another rule are not used
_MAGIC_NUMBERS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_BLOCK = 128  # images that a thread takes at a time
_Image = Any  # PIL.Image.Image: Pillow is imported only where an image is read


def is_image(head: bytes) -> bool:
    """Return whether a file that begins with these 12 bytes is an image."""
    return head.startswith(_MAGIC_NUMBERS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def read_image(path: Path, channels: int, size: int) -> UInt8[Tensor, "channel size size"]:
    """Read the centre square of an image file at `size`, enlarged if the image is smaller."""
    return torch.from_numpy(decode(local_file(path), size, channels)[0])


def header(file: DataFile) -> tuple[bool, int]:
    """Return whether an image is stored as grey, and its shorter side, without decoding it."""
    with _open(file) as image:
        return image.mode in _GREY_MODES, min(image.size)


def decode(file: DataFile, size: int, channels: int) -> tuple[UInt8[np.ndarray, "channel size size"], int]:
    """Return the centre square of an image at `size`, and the length of its original shorter side.

    Pillow widens the Lanczos filter when shrinking, so nothing aliases. An image of exactly `size` keeps its pixels.
    An animation yields its first frame.
    """
    from PIL import Image, ImageOps

    with _open(file) as image:
        image.load()
        flat = _flatten(ImageOps.exif_transpose(image), "L" if channels == 1 else "RGB")
    side = min(flat.size)
    left, top = ((extent - side) // 2 for extent in flat.size)
    square = flat.crop((left, top, left + side, top + side))
    square = square if side == size else square.resize((size, size), Image.Resampling.LANCZOS)
    pixels = np.asarray(square).reshape(size, size, channels)
    return np.array(pixels.transpose(2, 0, 1), order="C"), side


@contextmanager
def _open(file: DataFile) -> Iterator[_Image]:
    from PIL import Image

    with file.open() as stream:
        try:
            with Image.open(stream) as image:
                yield image
        except Exception as error:  # on broken bytes Pillow raises a dozen types, SyntaxError and struct.error among them
            reason = "unknown image format" if "cannot identify" in str(error) else str(error) or type(error).__name__
            raise UserError(f"{file.path} is not a readable image ({reason}): remove or replace it") from error


def _flatten(image: _Image, mode: str) -> _Image:
    """Convert to `mode`, with transparent pixels over white."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion clips at 255 instead of scaling
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
    return image.convert(mode)


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
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
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

    def fill(start: int) -> list[int]:
        sides = []
        for row, file in enumerate(files[start : start + _BLOCK], start):
            pixels[row], side = decode(file, size, channels)
            sides.append(side)
        return sides

    starts = range(0, len(files), _BLOCK)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        blocks = track(pool.map(fill, starts), len(starts), "decoding images")
        _refuse_small(files, [side for sides in blocks for side in sides], size)
    return pixels
