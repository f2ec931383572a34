from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anytime.core.errors import UserError
from anytime.data.files import Archive, DataFile
from anytime.data.image_io import decode, header


def file_of(content: bytes) -> DataFile:
    """The file a.png with this content, in a zip file in memory."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.png", content)
    return DataFile(Path(), "a.png", "", Archive(stream))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> DataFile:
    return file_of(encoded(image, kind, **options))


def test_an_image_of_the_size_keeps_its_pixels(random: np.random.Generator) -> None:
    pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    found, side = decode(saved(Image.fromarray(pixels)), 16, 3)
    assert np.array_equal(found, pixels.transpose(2, 0, 1))
    assert side == 16


@pytest.mark.parametrize("upright", [False, True])
def test_the_centre_square_is_taken(upright: bool) -> None:
    pixels = np.zeros((178, 218), np.uint8)
    pixels[:, 20:198] = 200  # the centre 178 of 218
    image = Image.fromarray(pixels.T if upright else pixels)
    assert (decode(saved(image), 64, 1)[0] == 200).all()


def test_shrinking_does_not_alias() -> None:
    stripes = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    found = decode(saved(Image.fromarray(stripes)), 16, 1)[0][0, 2:-2, 2:-2]
    assert np.ptp(found.astype(int)) < 10


def test_transparent_pixels_become_white() -> None:
    image = Image.new("RGBA", (8, 8), (10, 20, 30, 0))
    assert (decode(saved(image), 8, 3)[0] == 255).all()
    palette = Image.new("P", (8, 8), 0)
    palette.info["transparency"] = 0
    assert (decode(saved(palette, transparency=0), 8, 3)[0] == 255).all()


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    image = Image.fromarray(np.full((8, 8), 0x8000, np.uint16))
    assert header(saved(image)) == (True, 8)
    assert (decode(saved(image), 8, 1)[0] == 0x80).all()


def test_the_first_frame_of_an_animation_is_used() -> None:
    frames = [Image.new("L", (8, 8), value) for value in (40, 200)]
    file = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode(file, 8, 1)[0] == 40).all()


def test_the_exif_orientation_is_applied() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[0] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # rotated by 180 degrees
    found = decode(saved(Image.fromarray(pixels), exif=exif), 8, 3)[0]
    assert (found[:, -1] == 255).all()
    assert (found[:, 0] == 0).all()


@pytest.mark.parametrize(
    ("mode", "grey"), [("L", True), ("1", True), ("LA", True), ("RGB", False), ("RGBA", False), ("P", False)]
)
def test_the_mode_says_whether_an_image_is_grey(mode: str, grey: bool) -> None:
    assert header(saved(Image.new(mode, (9, 12)))) == (grey, 9)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP"])
def test_broken_images_are_refused_by_name(kind: str, random: np.random.Generator) -> None:
    whole = encoded(Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)), kind)
    for content in (b"", b"no image", whole[: len(whole) // 2], whole[:20]):
        with pytest.raises(UserError, match=r"^a\.png is not a readable image \(.+\): remove or replace it$"):
            decode(file_of(content), 8, 3)
