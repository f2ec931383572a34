from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from anytime.core.errors import UserError
from anytime.data import DATASETS, load, load_labels
from anytime.data.digits import load_embedded
from anytime.data.mnist import to_idx
from anytime.data.registry import find, state


def test_every_entry_is_complete() -> None:
    assert set(DATASETS) == {"digits", "mnist", "fashion-mnist", "cifar10", "celeba", "vctk", "audiomnist", "folder"}
    for name, entry in DATASETS.items():
        assert entry.name == name
        assert entry.description
        assert entry.licence
        for file in entry.files:
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", file.hash)
            assert file.url.startswith("https://")
            assert file.bytes > 0


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UserError, match="`name` 'cifar-10' is not a dataset; did you mean 'cifar10'"):
        load("cifar-10")


def test_states(mnist: Path, cache: Path) -> None:
    assert state(find("digits"), cache) == "embedded"
    assert state(find("folder"), cache) == "needs --data"
    assert state(find("mnist"), cache) == "not downloaded"
    cache.mkdir()
    mnist.rename(cache / "mnist")
    assert state(find("mnist"), cache) == "in the cache"


def test_absent_datasets_say_what_to_do(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run `anytime data get mnist` or pass a copy with `data`"):
        load("mnist", cache=cache)
    with pytest.raises(UserError, match="with `data`"):
        load("folder", cache=cache)
    with pytest.raises(UserError, match=r"`data` .*nowhere does not exist"):
        load("cifar10", data=tmp_path / "nowhere")
    with pytest.raises(UserError, match="leave `data` out"):
        load("digits", data=tmp_path)


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10", "celeba"])
def test_size_is_refused_where_it_is_fixed(name: str) -> None:
    with pytest.raises(UserError, match=f"`size` does not apply to {name}"):
        load(name, size=28)


def test_the_package_imports_and_the_digits_load_on_a_bare_machine() -> None:
    program = (
        "import sys\n"
        "for name in ('PIL', 'pooch', 'rich', 'requests'): sys.modules[name] = None\n"
        "import anytime.data.image_grid as p, anytime.data as d\n"
        "from anytime.data.loader import to_float\n"
        "x = to_float(d.load('digits').train[:4])\n"
        "assert p.grid(x).shape == (62, 62, 1)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


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
