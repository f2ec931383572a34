"""Samples as .npz files: written, read, and refused in one sentence if they are something else."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anytime.model import AnytimeModel
from anytime.sampling.sample_file import npz_bytes, read_npz

Refused = Callable[..., str]


@pytest.fixture
def arrays(tiny: AnytimeModel) -> dict[str, Any]:
    with np.load(io.BytesIO(npz_bytes(tiny.sample(4, codes=3)))) as file:
        return dict(file)


def test_a_sample_is_read_as_it_was_written(tiny: AnytimeModel) -> None:
    coarse = tiny.sample(4, seed=7, codes=3, temperature=0.5)
    again = read_npz(io.BytesIO(npz_bytes(coarse)), "memory")
    assert torch.equal(tiny.refine(again).codes, tiny.sample(4, seed=7, temperature=0.5).codes)
    assert (again.seed, again.settings, again.model) == (coarse.seed, coarse.settings, coarse.model)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("codes", np.zeros((4, 3))),
        ("codes", np.zeros((4, 3), dtype=complex)),
        ("codes", np.zeros(4, dtype=int)),
        ("codes", np.array([["a"] * 3] * 4)),
        ("rows", np.arange(4.0)),
        ("rows", np.zeros((4, 1), dtype=int)),
        ("rows", np.int64(4)),
        ("data", np.float32(0)),
        ("seconds", np.zeros(2)),
        ("seed", np.array("seed")),
        ("settings", np.array("[" * 100_000)),
        ("settings", np.array("3")),
    ],
)
def test_odd_fields_are_refused(arrays: dict[str, Any], field: str, value: Any, tmp_path: Path, refused: Refused) -> None:
    np.savez(tmp_path / "odd.npz", **arrays | {field: value})
    assert "the file" in refused(read_npz, tmp_path / "odd.npz", "the file")


def test_a_missing_field_and_another_file_are_refused(arrays: dict[str, Any], tmp_path: Path, refused: Refused) -> None:
    del arrays["rows"]
    np.savez(tmp_path / "few.npz", **arrays)
    assert "few is not an .npz file of samples" in refused(read_npz, tmp_path / "few.npz", "few")
    np.save(tmp_path / "one.npy", np.zeros(3))
    assert "one is not an .npz file of samples" in refused(read_npz, tmp_path / "one.npy", "one")
    assert "one is not" in refused(read_npz, io.BytesIO((tmp_path / "one.npy").read_bytes()), "one")
