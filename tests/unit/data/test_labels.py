from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from anytime.core.errors import UserError
from anytime.data import load
from anytime.data.digits import load_embedded
from anytime.data.mnist import to_idx
from anytime.data.registry import load_labels


def test_labels_match_their_images() -> None:
    """Every image has the label that it has in the file, after the split."""
    dataset, labels, whole = load("digits"), load_labels("digits"), load_embedded()
    labels.check(dataset)
    known = {image.tobytes(): int(label) for image, label in zip(whole.train, whole.train_labels, strict=True)}
    for x, own in ((dataset.train, labels.train), (dataset.validation, labels.validation)):
        assert [known[image.numpy().tobytes()] for image in x[::7, 0]] == own[::7].tolist()
    assert labels.test.tolist() == whole.test_labels.tolist()
    assert torch.bincount(labels.test).tolist() == [200] * 10


def test_labels_of_idx_files(mnist: Path) -> None:
    dataset, labels = load("mnist", data=mnist), load_labels("mnist", data=mnist)
    labels.check(dataset)
    assert labels.test.tolist() == [index % 10 for index in range(30)]
    part = labels.subset(20, 5)
    part.check(dataset.subset(20, 5))
    with pytest.raises(UserError, match="30 labels do not match the 130 images of mnist"):
        part.check(dataset)


def test_missing_and_damaged_labels_are_refused(mnist: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labels of cifar10 are not supported; those of digits, fashion-mnist, mnist are"):
        load_labels("cifar10")
    with pytest.raises(UserError, match="not downloaded"):
        load_labels("mnist", cache=tmp_path / "nothing")
    (mnist / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(to_idx(np.full(30, 77, np.uint8))))
    with pytest.raises(UserError, match="labels of mnist exceed 9"):
        load_labels("mnist", data=mnist)
    (mnist / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="lacks t10k-labels-idx1-ubyte"):
        load_labels("mnist", data=mnist)
