from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from anytime.core.errors import UserError
from anytime.data import load
from anytime.data.mnist import parse_idx, read_idx, to_idx


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_gzipped_files_load(mnist: Path, name: str) -> None:
    dataset = load(name, data=mnist)
    assert dataset.shape == (1, 28, 28)
    assert (len(dataset.train), len(dataset.validation), len(dataset.held_out)) == (90, 10, 30)
    raw = read_idx(mnist / "t10k-images-idx3-ubyte.gz", 3)
    assert torch.equal(dataset.held_out[:, 0], torch.from_numpy(raw.copy()))


def test_plain_files_and_the_other_spelling_load_the_same(mnist: Path) -> None:
    first = load("mnist", data=mnist)
    for path in list(mnist.glob("*-images*.gz")):
        (mnist / path.stem.replace("-idx", ".idx")).write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert torch.equal(load("mnist", data=mnist).train, first.train)


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte and t10k-images-idx3-ubyte.*`data`"):
        load("mnist", data=tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: gzip.compress(raw[:-1]),
        lambda raw: gzip.compress(raw + b"x"),
        lambda raw: gzip.compress(b"\0\0\x09\x03" + raw[4:]),
        lambda raw: gzip.compress(raw[:7]),
        lambda raw: gzip.compress(raw)[:-20],
        lambda raw: b"<html>not found</html>",
        lambda raw: b"",
    ],
)
def test_damaged_files_are_refused_by_name(mnist: Path, damage: object) -> None:
    path = mnist / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))  # type: ignore[operator]
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz is not a whole idx file"):
        load("mnist", data=mnist)


def test_images_of_another_shape_are_refused(mnist: Path) -> None:
    for path in mnist.glob("*-images*"):
        path.write_bytes(gzip.compress(to_idx(np.zeros((20, 8, 9), np.uint8))))
    with pytest.raises(UserError, match="1 x 8 x 9, not 1 x 28 x 28"):
        load("mnist", data=mnist)


def test_consecutive_arrays_are_parsed() -> None:
    first, second = np.arange(6, dtype=np.uint8).reshape(1, 2, 3), np.arange(4, dtype=np.uint8)
    array, rest = parse_idx(to_idx(first) + to_idx(second), 3)
    assert np.array_equal(array, first)
    assert np.array_equal(parse_idx(rest, 1)[0], second)
