from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anytime.core.errors import UserError
from anytime.data.digits import Digits
from anytime.data.mnist import read_idx, to_idx
from embed_digits import build, choose, main, pack


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Four idx files: 100 training and 30 test images, every digit equally often."""
    random = np.random.default_rng(0)
    for part, count in (("train", 100), ("t10k", 30)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(to_idx(random.integers(0, 256, (count, 28, 28), dtype=np.uint8)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(to_idx(np.arange(count, dtype=np.uint8) % 10))
    return tmp_path


def test_a_balanced_choice_in_the_order_of_the_dataset(mnist: Path) -> None:
    digits = build(mnist, each=(4, 2))
    assert np.bincount(digits.train_labels).tolist() == [4] * 10
    assert np.bincount(digits.test_labels).tolist() == [2] * 10
    indices = choose(np.arange(100, dtype=np.uint8) % 10, 4)
    assert (np.diff(indices) > 0).all()
    assert np.array_equal(digits.train, read_idx(mnist / "train-images-idx3-ubyte", 3)[indices])


def test_packing_is_lossless_and_reproducible(mnist: Path) -> None:
    digits = build(mnist, each=(4, 2))
    packed = pack(digits)
    assert packed == pack(build(mnist, each=(4, 2)))
    again = Digits.unpack(packed)
    for name in ("train", "train_labels", "test", "test_labels"):
        assert np.array_equal(getattr(again, name), getattr(digits, name))


def test_a_part_of_mnist_or_no_argument_is_refused(mnist: Path) -> None:
    with pytest.raises(UserError, match="only 10 examples are labelled 0 and 800 are needed"):
        main([str(mnist), str(mnist / "out.xz")])
    assert not (mnist / "out.xz").exists()
    with pytest.raises(UserError, match="MNIST_DIR"):
        main([])
