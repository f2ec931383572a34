from __future__ import annotations

import pytest
import torch

from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.sample import Sample


def test_images_as_bytes() -> None:
    data = torch.tensor([0.0, 0.5 / 255 - 1e-4, 0.5 / 255 + 1e-4, 0.5, 1.0]).view(1, 1, 1, 5)
    sample = Sample(data, torch.zeros(1, 1, dtype=torch.long), 0.0, 0, torch.arange(1), SamplingSettings(), "")
    assert sample.uint8().dtype == torch.uint8
    assert sample.uint8().flatten().tolist() == [0, 0, 1, 128, 255]


def test_a_sample_can_not_be_changed() -> None:
    sample = Sample(torch.zeros(1), torch.zeros(1, 1, dtype=torch.long), 0.0, 0, torch.arange(1), SamplingSettings(), "")
    with pytest.raises(AttributeError):
        sample.seed = 1  # type: ignore[misc]
