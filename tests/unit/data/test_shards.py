"""Tar shards of images: the same batches as from memory, within a bounded memory, and hostile shards refused."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import anytime
from anytime.core.errors import UserError
from anytime.data import load
from anytime.data.augment import augment_images
from anytime.data.dataset import Dataset
from anytime.data.image_shards import AugmentedShards, ImageShards
from anytime.data.loader import Loader

from .limits import Limits

SIZE = 8
Refused = Callable[..., str]


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write_shard(path: Path, members: dict[str, bytes], kind: int = tarfile.USTAR_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=kind) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def pixels(random: np.random.Generator) -> np.ndarray:
    return random.integers(0, 256, (60, SIZE, SIZE, 3), dtype=np.uint8)


@pytest.fixture
def shards(tmp_path: Path, pixels: np.ndarray) -> Path:
    """Three shards of 20 images with their labels beside them; one has long names, which take further headers."""
    for number in range(3):
        members: dict[str, bytes] = {}
        for row in range(20 * number, 20 * number + 20):
            stem = f"{'long/' * 30 if number == 1 else ''}{row:06}"
            members |= {f"{stem}.png": png(pixels[row]), f"{stem}.cls": b"3", f"{stem}.json": b"{}"}
        kind = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)[number]
        write_shard(tmp_path / "shards" / f"shard-{number:03}.tar", members, kind)
    return tmp_path / "shards"


@pytest.fixture
def dataset(shards: Path, cache: Path) -> Dataset:
    return load("folder", data=shards, size=SIZE, cache=cache)


def images(dataset: Dataset) -> ImageShards:
    assert isinstance(dataset.train, ImageShards)
    return dataset.train


def test_every_image_is_read_once_as_it_was_written(dataset: Dataset, pixels: np.ndarray) -> None:
    assert (dataset.shape, len(dataset.train), len(dataset.validation)) == ((3, SIZE, SIZE), 54, 6)
    train = images(dataset).load()
    found = torch.cat([train, dataset.validation]).permute(0, 2, 3, 1).reshape(60, -1).tolist()
    assert sorted(found) == sorted(pixels.reshape(60, -1).tolist())
    assert "60 images in 3 tar shards" in dataset.source
    assert torch.equal(dataset.images.flatten(1).sum(1).sort().values, train.flatten(1).sum(1).sort().values)


def test_batches_are_those_of_the_same_images_in_memory(dataset: Dataset) -> None:
    """In any order of steps, for any number of ranks, and beyond the end of an epoch."""
    train = images(dataset)
    memory, streamed = Loader(train.load(), 8, seed=3), Loader(train, 8, seed=3)
    halves = [Loader(train, 8, seed=3, rank=rank, world_size=2) for rank in range(2)]
    for step in (0, 1, 2, 5, 6, 7, 13, 2, 3):
        expected = memory.batch_at(step)
        assert torch.equal(streamed.batch_at(step), expected)
        assert torch.equal(torch.cat([half.batch_at(step) for half in halves]), expected)


def test_augmented_images_are_those_in_memory(dataset: Dataset) -> None:
    train, augmented = images(dataset), AugmentedShards(images(dataset), 3)
    expected = torch.cat([augment_images(train.load(), number) for number in range(3)])
    rows = torch.tensor([0, 53, 54, 107, 108, 161, 60])
    assert torch.equal(augmented[rows], expected[rows])
    assert torch.equal(torch.cat(list(augmented.chunks())), expected)


def test_the_index_is_cached_until_a_shard_changes(shards: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anytime.data import tar_shards

    first = load("folder", data=shards, size=SIZE, cache=cache)
    with monkeypatch.context() as patch:
        patch.setattr(tar_shards, "_scan", lambda *_: pytest.fail("indexed again"))
        again = load("folder", data=shards, size=SIZE, cache=cache)
    assert torch.equal(images(first).load(), images(again).load())
    write_shard(shards / "shard-003.tar", {"x.png": png(np.zeros((SIZE, SIZE, 3), np.uint8))})
    assert len(images(load("folder", data=shards, size=SIZE, cache=cache)).index) == 61


def test_one_shard_and_grey_images(tmp_path: Path, cache: Path) -> None:
    grey = {f"{row}.png": png(np.full((10, 12), row, np.uint8)) for row in range(20)}
    found = load("folder", data=write_shard(tmp_path / "one.tar", grey), size=SIZE, cache=cache)
    assert found.shape == (1, SIZE, SIZE)


def test_what_is_not_a_member_that_may_be_read(tmp_path: Path, cache: Path) -> None:
    """Links, devices, hidden files and names outside the archive: read as bytes of the archive or left out."""
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind in (("a.png", tarfile.SYMTYPE), ("b.png", tarfile.LNKTYPE), ("c.png", tarfile.CHRTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        content = png(np.zeros((SIZE, SIZE, 3), np.uint8))
        for name in (".hidden.png", "../up.png", *(f"/etc/{row}.png" for row in range(12))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert len(images(load("folder", data=path, size=SIZE, cache=cache)).index) == 12


def whole(tmp_path: Path) -> bytes:
    members = {f"{row}.png": png(np.full((SIZE, SIZE, 3), row, np.uint8)) for row in range(12)}
    return write_shard(tmp_path / "whole.tar", members).read_bytes()


def negative_size(content: bytes) -> bytes:
    """A first member whose size leads back to its own header."""
    info = tarfile.TarInfo.frombuf(content[:512], "utf-8", "strict")
    head = bytearray(info.tobuf())
    head[124:136] = (-512).to_bytes(12, "big", signed=True)
    head[148:156] = b"        "
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + content[512:]


def huge_name(content: bytes) -> bytes:
    """A long name of 8 GiB - 1."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 0o77777777777
    return info.tobuf() + content


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content[:600], "is not a whole tar file"),
        (lambda content: b"", "is not a whole tar file"),
        (lambda content: b"not a tar file at all" * 100, "is not a whole tar file"),
        (gzip.compress, "unpack it with gunzip"),
        (negative_size, "negative size"),
        (lambda content: content[:1024] + negative_size(content[1024:]), "negative size"),
        (huge_name, "more than 1 MiB"),
        (lambda content: content[:512] + b"x" * 100 + content[612:], "0.png"),
    ],
)
def test_hostile_shards(damage: Callable[[bytes], bytes], words: str, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "hostile" / "x.tar"
    path.parent.mkdir()
    path.write_bytes(damage(whole(tmp_path)))
    limits = Limits()
    sentence = limits.run(lambda: load("folder", data=path.parent, size=SIZE, cache=cache))
    limits.check_memory()
    assert sentence is not None and words in sentence


def test_mistakes(tmp_path: Path, shards: Path, cache: Path, refused: Refused) -> None:
    def read(data: Path, size: int = SIZE) -> str:
        return refused(load, "folder", data=data, size=size, cache=cache)

    assert "000000.png is smaller than 16 x 16" in read(shards, 16)
    write_shard(tmp_path / "few" / "x.tar", {"x.png": png(np.zeros((SIZE, SIZE), np.uint8))})
    assert "hold 1 images and at least 10 are needed" in read(tmp_path / "few")
    (shards / "x.png").write_bytes(png(np.zeros((SIZE, SIZE), np.uint8)))
    assert "both tar shards and images" in read(shards)


def test_a_shard_that_vanishes(dataset: Dataset, shards: Path) -> None:
    (shards / "shard-001.tar").unlink()
    with pytest.raises(UserError, match=r"shard-001\.tar cannot be read \(No such file or directory\): restore it"):
        images(dataset).load()


MEASURE = """
import resource, sys
from pathlib import Path
import torch
from anytime.data import load
from anytime.data.loader import Loader
torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
few, many = (load("folder", data=Path(name), size=256, cache=Path(sys.argv[3])) for name in sys.argv[1:3])
def epoch(dataset):
    loader = Loader(dataset.train, 16, seed=0)
    for step in range(loader.steps_per_epoch):
        loader.batch_at(step)
    return peak()
print(epoch(few), epoch(many), many.train.nbytes >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="memory is measured in Linux's units")
def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    """An epoch of 2,000 images, 375 MB when decoded, takes little more memory than an epoch of 200."""
    members = {f"{row}.png": png(np.full((256, 256, 3), row, np.uint8)) for row in range(200)}
    for number in range(10):
        folder = "few" if number == 0 else "many"
        write_shard(tmp_path / folder / f"{number}.tar", members)
    os.link(tmp_path / "few" / "0.tar", tmp_path / "many" / "0.tar")
    environment = os.environ | {"PYTHONPATH": str(Path(anytime.__file__).parents[1])}
    words = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in ("few", "many", "cache"))]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=True)
    few, many, decoded = map(int, done.stdout.split())
    assert decoded > 300
    assert many - few < 100, f"{few} MB for 200 images, {many} MB for 2,000, {decoded} MB decoded"
