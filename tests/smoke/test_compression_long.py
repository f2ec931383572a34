"""100 random cuts of each of 100 files of CIFAR-10's test images: all decode to complete images (make test-long)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import anytime
from anytime import data
from anytime.compression import Compressor
from anytime.compression.file_format import HEADER_BYTES
from anytime.core.errors import UserError
from anytime.model import AnytimeModel


@pytest.fixture(scope="module")
def model() -> AnytimeModel:
    return anytime.load("cifar10", "cpu")


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """The first 100 test images of CIFAR-10: from the directory $ANYTIME_CIFAR10, or from the cache."""
    copy = os.environ.get("ANYTIME_CIFAR10")
    try:
        found = data.load("cifar10", data=Path(copy) if copy else None).test
    except UserError as error:
        pytest.skip(f"no test images: {error}")
    assert found is not None
    return found[:100]


def check_random_cuts(model: AnytimeModel, x: torch.Tensor, cuts: int) -> dict[str, float]:
    """Cut files of images at random bytes; return how many cuts are complete, and their mean codes and bytes."""
    compressor, rng = Compressor(model), np.random.default_rng(0)
    coded, codes, complete, found = compressor.compress(x), torch.cat([model.encode(image[None]) for image in x]), 0, []
    sizes_of_files = [len(file) for file in coded]
    for file, row in zip(coded, codes, strict=True):
        sizes = rng.integers(HEADER_BYTES, len(file) + 1, cuts)
        for cut in compressor.decompress([file[:size] for size in sizes]):
            count = cut.codes.shape[1]
            assert cut.codes[0].tolist() == row[:count].tolist(), "a cut has a prefix of the file's codes"
            complete += int(cut.data.shape == (1, 3, 32, 32) and bool(cut.data.isfinite().all()))
            found.append(count)
    means = {"mean_codes": float(np.mean(found)), "mean_file_bytes": float(np.mean(sizes_of_files))}
    return {"files": len(x), "cuts": len(x) * cuts, "complete": complete, **means}


def test_random_cuts_of_a_few_files(model: AnytimeModel) -> None:
    found = check_random_cuts(model, model.sample(3, seed=0).uint8(), 10)
    assert found["complete"] == found["cuts"] == 30


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_random_cuts_of_a_hundred_files(
    model: AnytimeModel, images: torch.Tensor, record_property: Callable[[str, object], None]
) -> None:
    found = check_random_cuts(model, images, 100)
    for name, value in found.items():
        record_property(name, value)
    assert found["complete"] == found["cuts"] == 10_000
