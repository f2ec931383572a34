"""anytime compress and decompress: round trips, cuts, directories and mistakes."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

Command = Callable[..., Any]
Refused = Callable[..., str]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A grey image of the model's size."""
    path = tmp_path / "photo.png"
    Image.linear_gradient("L").resize((28, 28)).save(path)
    return path


def test_round_trip_and_cuts(command: Command, model: Path, image: Path, tmp_path: Path) -> None:
    done = command("compress", image, "photo.any", "--model", model, "--json")
    assert done.status == 0, done.err
    row = json.loads(done.out.splitlines()[-1])["files"][0]
    content = (tmp_path / "photo.any").read_bytes()
    assert row == {"file": str(image), "out": "photo.any", "bytes": len(content)}
    counts = []
    for size in (4, len(content) // 2 + 2, len(content)):
        (tmp_path / "cut.any").write_bytes(content[:size])
        done = command("decompress", "cut.any", "cut.png", "--model", model, "--json")
        assert done.status == 0, done.err
        counts.append(len(json.loads(done.out.splitlines()[-1])["files"][0]["codes"]))
        with Image.open(tmp_path / "cut.png") as cut:
            assert (cut.size, cut.mode) == ((28, 28), "L")
    assert counts[0] == 0 < counts[1] < counts[2] == 8
    done = command("decompress", "photo.any", "few.png", "--model", model, "--codes", 2)
    assert "few.png  2 of 8 codes" in done.out


def test_directories_and_several_files(command: Command, model: Path, image: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "photos" / name).write_bytes(image.read_bytes())
    assert command("compress", "photos", image, "out", "--model", model).status == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.any", "b.any", "photo.any"]
    assert command("decompress", "out", "back", "--model", model).status == 0
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["a.png", "b.png", "photo.png"]


def test_the_model_is_found_by_its_hash(command: Command, tmp_path: Path, image: Path) -> None:
    assert command("compress", image, "photo.any", "--model", "mnist").status == 0
    done = command("decompress", "photo.any", "back.png")
    assert done.status == 0 and "back.png  16 of 16 codes" in done.out


def test_other_sizes_and_modes(command: Command, refused: Refused, model: Path, tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "large.png")
    sentence = refused("compress", "large.png", "large.any", "--model", model)
    assert all(part in sentence for part in ("40 × 30 pixels in mode RGB", "28 × 28 pixels in mode L", "--resize"))
    Image.new("RGBA", (28, 28)).save(tmp_path / "colour.png")
    assert "mode RGBA" in refused("compress", "colour.png", "colour.any", "--model", model)
    assert command("compress", "large.png", "large.any", "--model", model, "--resize").status == 0


@pytest.mark.parametrize("name", ["frames.gif", "frames.png", "frames.webp", "pages.tiff"])
@pytest.mark.parametrize("words", [(), ("--resize",)])
def test_several_images_in_one_file(refused: Refused, model: Path, tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    first, second = (Image.new("L", (28, 28), grey) for grey in (0, 200))
    first.save(tmp_path / name, save_all=True, append_images=[second])
    assert f"{name} holds several images" in refused("compress", name, "x.any", "--model", model, *words)


def test_modes_that_pillow_hides(command: Command, refused: Refused, tmp_path: Path) -> None:
    """Colours of 16 bits and a transparent colour are read as RGB: they are not lost without a word."""
    colours = Image.linear_gradient("L").resize((32, 32)).convert("RGB")
    colours.save(tmp_path / "hole.png", transparency=(0, 0, 0))
    (tmp_path / "deep.png").write_bytes(png_of_16_bits(32))
    for name, mode in (("hole.png", "RGB;transparent"), ("deep.png", "RGB;16")):
        assert f"mode {mode}, the model takes 32 × 32 pixels in mode RGB" in refused("compress", name, "x.any")
        assert command("compress", name, "x.any", "--resize").status == 0


def png_of_16_bits(size: int) -> bytes:
    """A PNG of random colours of 16 bits, which Pillow does not write."""
    rows = random.Random(0).randbytes(size * 6 * size)
    raw = b"".join(b"\0" + rows[at : at + 6 * size] for at in range(0, len(rows), 6 * size))

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", size, size, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def test_mistakes_in_compress(refused: Refused, model: Path, image: Path, tmp_path: Path) -> None:
    for words, part in (
        ([], "at least two paths"),
        ([image], "at least two paths"),
        (["absent.png", "x.any"], "absent.png"),
        ([image, "other.png"], "suffix of an image"),
        ([image, image, "x.any"], "must be a directory"),
        ([image, "x.any", "--model", "absent"], "not a model"),
        ([tmp_path / "photo.any", "x.any"], "photo.any"),
    ):
        sentence = refused("compress", *words, *(() if "--model" in words else ("--model", model)))
        assert part in sentence, sentence


def test_mistakes_in_decompress(command: Command, refused: Refused, model: Path, image: Path, tmp_path: Path) -> None:
    assert command("compress", image, "photo.any", "--model", model).status == 0
    (tmp_path / "header.any").write_bytes((tmp_path / "photo.any").read_bytes()[:3])
    (tmp_path / "empty.any").write_bytes(b"")
    for words, parts in (
        (["header.any", "x.png"], ["header.any is cut inside its header", "3 of 4 bytes"]),
        (["empty.any", "x.png"], ["empty.any is cut inside its header"]),
        ([image, "x.png"], [str(image), "not a file of this version of `anytime compress`"]),
        (["photo.any", "x.png"], ["not bundled", "--model"]),
        (["photo.any", "x.png", "--model", "mnist"], ["photo.any was compressed with another model", "--model"]),
        (["photo.any", "x.jpg", "--model", model], ["x.jpg must end in .png"]),
        (["photo.any", "x.png", "--model", model, "--codes", 9], ["--codes"]),
        (["photo.any", "header.any", "back", "--model", model], ["header.any"]),
        (["photo.any", "photo.any", "--model", model], ["photo.any"]),
    ):
        sentence = refused("decompress", *words)
        assert all(part in sentence for part in parts), sentence


def test_the_model_directory_is_not_written(refused: Refused, model: Path, image: Path) -> None:
    assert "directory of a run or a model" in refused("compress", image, model / "x.any", "--model", model)
