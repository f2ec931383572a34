from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from anytime.core.errors import UserError
from anytime.data import load
from anytime.data.digits import FILE, FOLDER, load_embedded


def test_digits_are_balanced_and_split() -> None:
    digits = load_embedded()
    assert np.bincount(digits.train_labels).tolist() == [800] * 10
    assert np.bincount(digits.test_labels).tolist() == [200] * 10
    assert digits.train.shape == (8000, 28, 28)
    assert digits.test.shape == (2000, 28, 28)
    dataset = load("digits")
    assert (len(dataset.train), len(dataset.validation), len(dataset.held_out)) == (7200, 800, 2000)
    assert dataset.shape == (1, 28, 28)
    assert not dataset.synthetic


def test_digits_are_distinct_and_in_mixed_order() -> None:
    digits = load_embedded()
    assert len(np.unique(np.concatenate([digits.train, digits.test]).reshape(10_000, -1), axis=0)) == 10_000
    assert len(np.unique(digits.train_labels[:100])) == 10
    assert 25 < digits.train.mean() < 40  # MNIST's mean is 33: strokes on black


def test_the_file_is_small() -> None:
    assert (FOLDER / FILE).stat().st_size < 2_500_000


def test_an_altered_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"digits\.xz cannot be read"):
        load_embedded(tmp_path)
    shutil.copy(FOLDER / FILE, tmp_path)
    content = bytearray((tmp_path / FILE).read_bytes())
    content[1000] ^= 1
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UserError, match=r"digits\.xz is damaged or altered"):
        load_embedded(tmp_path)
