from __future__ import annotations

import pytest
import torch

from anytime.data import Dataset, synthetic_audio, synthetic_images
from anytime.data.recordings import CROP, PADDING, Recordings


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 16, 24)])
def test_synthetic_is_a_pure_function_of_the_seed(shape: tuple[int, int, int]) -> None:
    first, again, other = (synthetic_images("mnist", shape, 64, seed) for seed in (0, 0, 1))
    assert first.shape == shape
    assert first.synthetic
    assert "synthetic" in first.source
    assert torch.equal(first.train, again.train)
    assert not torch.equal(first.train, other.train)


def test_synthetic_images_differ_from_each_other_and_have_structure() -> None:
    dataset: Dataset = synthetic_images("mnist", (1, 28, 28), 64)
    everything = torch.cat([dataset.train, dataset.validation, dataset.held_out])
    assert len(everything.unique(dim=0)) == 64 + 8 + 8
    x = everything.float()
    assert (x.amax((1, 2, 3)) - x.amin((1, 2, 3)) > 50).all()
    assert (x[..., 1:] - x[..., :-1]).abs().mean() < 0.2 * x.std()  # smooth, as noise is not


def test_synthetic_audio_is_a_pure_function_of_the_seed() -> None:
    first, again, other = (synthetic_audio("vctk", 16, seed) for seed in (0, 0, 1))
    assert isinstance(first.train, Recordings) and isinstance(again.train, Recordings) and first.synthetic
    assert first.shape == (1, CROP)
    assert torch.equal(first.train.samples, again.train.samples)
    assert not torch.equal(first.held_out, other.held_out)
    assert 0 < first.train.num_short < 16, "some recordings are padded, others leave a choice of crops"
    assert (first.train.tiles() == PADDING).any()
    assert first.labels is not None and len(first.labels.train) == 16
