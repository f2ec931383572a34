from __future__ import annotations

import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from anytime.core.errors import UserError
from anytime.data import load
from anytime.data.cifar import read_batch

HERE = Path("data_batch_1")


def test_the_three_forms_load_the_same(cifar: Path, tmp_path: Path) -> None:
    first = load("cifar10", data=cifar)
    assert first.shape == (3, 32, 32)
    assert (len(first.train), len(first.validation), len(first.held_out)) == (90, 10, 20)
    assert torch.equal(load("cifar10", data=cifar / "cifar-10-batches-py").train, first.train)

    archived = tmp_path / "archived"
    archived.mkdir()
    with tarfile.open(archived / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(cifar / "cifar-10-batches-py", "cifar-10-batches-py")
    assert torch.equal(load("cifar10", data=archived).train, first.train)

    whole = [read_batch(path.read_bytes(), path) for path in sorted((cifar / "cifar-10-batches-py").iterdir())]
    x = np.concatenate(whole).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    np.savez(arrays / "cifar10.npz", x_train=x[:100], y_train=np.zeros(100), x_test=x[100:], y_test=np.zeros(20))
    again = load("cifar10", data=arrays)
    assert torch.equal(again.train, first.train)
    assert torch.equal(again.held_out, first.held_out)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_batches_of_any_pickle_protocol_load(protocol: int, random: np.random.Generator) -> None:
    data = random.integers(0, 256, (3, 3072), dtype=np.uint8)
    content = pickle.dumps({b"data": data, b"labels": [1, 2, 3], b"batch_label": b"one"}, protocol)
    assert np.array_equal(read_batch(content, HERE), data)


class Malicious:
    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple[object, ...]:
        return self.reduced


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(os.mkdir, ("owned",)), (eval, ("__import__('os').mkdir('owned')",)), (getattr, ("text", "upper")), (np.load, ("owned",))],
)
def test_a_pickle_that_asks_to_run_anything_is_refused(
    function: object, arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in (0, 2, 4):
        content = pickle.dumps({b"data": Malicious(function, arguments)}, protocol)
        with pytest.raises(UserError, match=r"data_batch_1 asks to run .* do not trust it"):
            read_batch(content, HERE)
    assert not list(tmp_path.iterdir())


def test_no_other_codec_is_allowed() -> None:
    content = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R."
    with pytest.raises(UserError, match="rot13"):
        read_batch(content, HERE)


@pytest.mark.parametrize("data", [np.zeros((2, 3072), np.float32), np.zeros((2, 100), np.uint8), [1, 2], None])
def test_batches_without_pixels_are_refused(data: object) -> None:
    with pytest.raises(UserError, match="no uint8 array"):
        read_batch(pickle.dumps({b"data": data}), HERE)
    with pytest.raises(UserError, match="no uint8 array"):
        read_batch(pickle.dumps([data]), HERE)


def test_truncated_batches_are_refused_at_every_length(batch: Callable[[np.ndarray], bytes]) -> None:
    content = batch(np.zeros((1, 3072), np.uint8))
    for length in (*range(300), len(content) - 1):
        with pytest.raises(UserError, match="data_batch_1"):
            read_batch(content[:length], HERE)


def test_missing_and_truncated_files_are_named(cifar: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cifar-10-batches-py/, cifar-10-python\.tar\.gz and cifar10\.npz"):
        load("cifar10", data=tmp_path)
    archived = cifar / "cifar-10-python.tar.gz"
    with tarfile.open(archived, "w:gz") as archive:
        archive.add(cifar / "cifar-10-batches-py", "cifar-10-batches-py")
    (cifar / "cifar-10-batches-py" / "data_batch_3").unlink()
    (cifar / "cifar-10-batches-py" / "test_batch").unlink()
    with pytest.raises(UserError, match="lacks data_batch_3, test_batch"):
        load("cifar10", data=cifar)
    shutil.rmtree(cifar / "cifar-10-batches-py")
    archived.write_bytes(archived.read_bytes()[: archived.stat().st_size // 2])
    with pytest.raises(UserError, match="not a whole tar file"):
        load("cifar10", data=cifar)


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cifar10.npz"
    path.write_bytes(b"PK no zip")
    with pytest.raises(UserError, match="x_train and x_test"):
        load("cifar10", data=tmp_path)
    np.savez(path, x_train=np.zeros((4, 32, 32, 3), np.uint8))
    with pytest.raises(UserError, match="x_train and x_test"):
        load("cifar10", data=tmp_path)
    np.savez(path, x_train=np.zeros((4, 3, 32, 32), np.uint8), x_test=np.zeros((4, 3, 32, 32), np.uint8))
    with pytest.raises(UserError, match=r"\[n, 32, 32, 3\] is expected"):
        load("cifar10", data=tmp_path)
    np.savez(path, x_train=np.array([Malicious(os.mkdir, ("owned",))]), x_test=np.zeros(1))
    with pytest.raises(UserError, match="x_train and x_test"):
        load("cifar10", data=tmp_path)
