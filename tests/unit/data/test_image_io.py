from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anytime.core.errors import UserError
from anytime.data.files import Archive, DataFile, find_files
from anytime.data.image_io import SUFFIXES, RangeWarning, decode, header, read_image, read_images


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
    found = decode(saved(Image.fromarray(pixels)), 16, 3)
    assert np.array_equal(found.pixels, pixels.transpose(2, 0, 1))
    assert found.side == 16


@pytest.mark.parametrize("upright", [False, True])
def test_the_centre_square_is_taken(upright: bool) -> None:
    pixels = np.zeros((178, 218), np.uint8)
    pixels[:, 20:198] = 200  # the centre 178 of 218
    image = Image.fromarray(pixels.T if upright else pixels)
    assert (decode(saved(image), 64, 1).pixels == 200).all()


def test_shrinking_does_not_alias() -> None:
    stripes = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    found = decode(saved(Image.fromarray(stripes)), 16, 1).pixels[0, 2:-2, 2:-2]
    assert np.ptp(found.astype(int)) < 10


def test_transparent_pixels_become_white() -> None:
    image = Image.new("RGBA", (8, 8), (10, 20, 30, 0))
    assert (decode(saved(image), 8, 3).pixels == 255).all()
    palette = Image.new("P", (8, 8), 0)
    palette.info["transparency"] = 0
    assert (decode(saved(palette, transparency=0), 8, 3).pixels == 255).all()


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    image = Image.fromarray(np.full((8, 8), 0x8000, np.uint16))
    assert header(saved(image)) == (True, 8)
    assert (decode(saved(image), 8, 1).pixels == 0x80).all()


def test_the_first_frame_of_an_animation_is_used() -> None:
    frames = [Image.new("L", (8, 8), value) for value in (40, 200)]
    file = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode(file, 8, 1).pixels == 40).all()


def test_the_exif_orientation_is_applied() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[0] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # rotated by 180 degrees
    found = decode(saved(Image.fromarray(pixels), exif=exif), 8, 3).pixels
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


def deep(values: np.ndarray, kind: str = "TIFF") -> DataFile:
    return saved(Image.fromarray(values), kind)


@pytest.mark.parametrize(
    ("values", "kind", "shown", "note"),
    [
        (np.array([0.0, 0.5, 1.0], np.float32), "TIFF", [0, 128, 255], ""),
        (np.array([0.0, 100.0, 200.0], np.float32), "TIFF", [0, 100, 200], "0 to 255"),
        (np.array([-1.0, 0.0, 1.0], np.float32), "TIFF", [0, 128, 255], "-1 to 1"),
        (np.array([0, 2048, 4095], np.uint16), "PNG", [0, 128, 255], "0 to 4,095"),
        (np.array([0, 2048, 4095], np.uint16), "TIFF", [0, 128, 255], "0 to 4,095"),
        (np.array([0, 32_768, 65_535], np.uint16), "PNG", [0, 128, 255], ""),
        (np.array([0, 100, 200], np.int32), "TIFF", [0, 100, 200], "0 to 255"),
        (np.array([0, 32_768, 65_535], np.int32), "TIFF", [0, 128, 255], ""),
        (np.array([0, 1 << 19, 1 << 20], np.int32), "TIFF", [0, 128, 255], "0 to 1.04858e+06"),
        (np.array([-500, 0, 500], np.int32), "TIFF", [0, 128, 255], "-500 to 500"),
        (np.zeros(3, np.uint16), "PNG", [0, 0, 0], ""),
        (np.full(3, -7, np.int32), "TIFF", [0, 0, 0], "-7 to -6"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_deep_images_are_scaled_by_their_range(
    values: np.ndarray, kind: str, shown: list[int], note: str, channels: int
) -> None:
    square = np.repeat(values[None], 3, axis=0)
    found = decode(deep(square, kind), 3, channels)
    assert found.pixels[-1, 0].tolist() == shown
    assert found.range_note == (note and f"was scaled as values from {note}")


def test_a_guessed_range_is_warned_of_by_name(tmp_path: Path, cache: Path) -> None:
    for number in range(10):
        Image.fromarray(np.full((32, 32), 1000 if number > 6 else 40_000, np.uint16)).save(tmp_path / f"{number}.png")
    files = find_files(tmp_path, SUFFIXES)
    with pytest.warns(RangeWarning, match=r"7\.png was scaled as values from 0 to 4,095 \(2 more images have such a guess\)$"):
        pixels = read_images(files, 32, cache)
    assert pixels[-1].unique().tolist() == [62]
    with pytest.warns(RangeWarning, match=r"7\.png was scaled as values from 0 to 4,095$"):
        read_image(tmp_path / "7.png", 1, 32)


def test_colours_of_twelve_bits_in_sixteen_are_warned_of() -> None:
    """Pillow keeps the upper 8 bits only, so that nothing can be scaled."""

    def png(high: int) -> DataFile:
        row = b"\0" + bytes((high, 255)) * 24
        chunks = ((b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(row * 8)), (b"IEND", b""))
        parts = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
        return file_of(b"\x89PNG\r\n\x1a\n" + b"".join(parts))

    assert "uses the lowest 12" in decode(png(15), 8, 3).range_note
    assert not decode(png(200), 8, 3).range_note
    assert not decode(saved(Image.new("RGB", (8, 8), (9, 9, 9))), 8, 3).range_note
    assert not decode(saved(Image.new("RGB", (8, 8), (9, 9, 9)), "BMP"), 8, 3).range_note


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_floats_that_are_not_numbers_are_refused(value: float) -> None:
    with pytest.raises(UserError, match=r"^a\.png is not a readable image \(it holds values that are not numbers"):
        decode(deep(np.full((8, 8), value, np.float32)), 8, 1)
