"""Small files in every published format."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anytime.data.mnist import to_idx


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def mnist(tmp_path: Path, random: np.random.Generator) -> Path:
    """Four gzipped idx files: 100 training and 30 test images, every digit equally often."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, count in (("train", 100), ("t10k", 30)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(to_idx(images)))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(to_idx(labels)))
    return folder


@pytest.fixture
def batch() -> Callable[[np.ndarray], bytes]:
    """A CIFAR-10 batch as Python 2 and an old numpy pickled the published ones."""

    def pickled(data: np.ndarray) -> bytes:
        shape = b"".join(b"J" + struct.pack("<i", size) for size in data.shape) + b"\x86"
        array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        pixels = b"T" + struct.pack("<i", data.size) + data.tobytes()
        return b"\x80\x02}U\x04data" + array + b"(K\x01" + shape + dtype + b"\x89" + pixels + b"tbs."

    return pickled


@pytest.fixture
def cifar(tmp_path: Path, random: np.random.Generator, batch: Callable[[np.ndarray], bytes]) -> Path:
    """A folder that holds `cifar-10-batches-py/` with 20 images a batch."""
    folder = tmp_path / "cifar" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(batch(random.integers(0, 256, (20, 3072), dtype=np.uint8)))
    return folder.parent


def image_file(size: tuple[int, int], mode: str = "RGB", value: int = 100, kind: str = "PNG") -> bytes:
    """An image file of one value."""
    stream = io.BytesIO()
    Image.new(mode, size, value if mode in ("L", "I;16") else (value,) * len(mode)).save(stream, kind, lossless=True)
    return stream.getvalue()


@pytest.fixture
def image_dir(tmp_path: Path) -> Path:
    """Twenty images of several formats at two depths; image i has value 10 i."""
    folder = tmp_path / "photographs"
    (folder / "deep" / "er").mkdir(parents=True)
    for number in range(20):
        kind, ending = (("PNG", "png"), ("BMP", "BMP"), ("TIFF", "tif"), ("WEBP", "webp"))[number % 4]
        place = folder if number < 10 else folder / "deep" / "er"
        (place / f"{number:02}.{ending}").write_bytes(image_file((40, 50), value=10 * number, kind=kind))
    (folder / "notes.txt").write_text("not an image")
    (folder / "._00.png").write_text("a macOS resource fork")
    return folder


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    """The published layout, zipped: 178 x 218 images 1..12 of value 10 i, 8 + 2 + 2 by the list."""
    folder = tmp_path / "celeba"
    folder.mkdir()
    with zipfile.ZipFile(folder / "img_align_celeba.zip", "w") as archive:
        for number in range(1, 13):
            archive.writestr(f"img_align_celeba/{number:06}.jpg", image_file((178, 218), value=10 * number, kind="JPEG"))
    parts = {number: "0" if number <= 8 else "1" if number <= 10 else "2" for number in range(1, 13)}
    parts[1], parts[12] = parts[12], parts[1]  # the parts need not be contiguous
    lines = "".join(f"{number:06}.jpg {part}\r\n" for number, part in parts.items())
    (folder / "list_eval_partition.txt").write_bytes(lines.encode())
    return folder
