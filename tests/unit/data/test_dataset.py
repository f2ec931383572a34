from __future__ import annotations

import pytest
import torch

from anytime.data import Dataset
from anytime.data.dataset import split_validation, with_random_validation


def numbered(count: int) -> torch.Tensor:
    """Images that carry their own number in three pixels."""
    numbers = torch.arange(count)
    pixels = torch.stack([numbers % 256, numbers // 256 % 256, numbers // 65536], dim=1)
    return pixels.to(torch.uint8).reshape(count, 1, 1, 3)


def numbers(x: torch.Tensor) -> torch.Tensor:
    return (x.reshape(-1, 3).long() * torch.tensor([1, 256, 65536])).sum(1)


@pytest.mark.parametrize(
    ("count", "random_validation"), [(60_000, 5_000), (50_000, 5_000), (49_999, 4_999), (8_000, 800), (12, 1), (3, 1)]
)
def test_validation_is_5000_or_a_tenth_and_disjoint(count: int, random_validation: int) -> None:
    train, validation = (numbers(part) for part in split_validation(numbered(count)))
    assert len(validation) == random_validation
    assert torch.equal(torch.cat([train, validation]).sort().values, torch.arange(count))
    assert torch.equal(train, train.sort().values)  # the order of the set is kept
    assert torch.equal(validation, validation.sort().values)


def test_held_out_is_the_test_part_or_else_validation() -> None:
    x = numbered(100)
    assert with_random_validation("a", x, x[:7], "here").held_out is not None
    assert len(with_random_validation("a", x, x[:7], "here").held_out) == 7
    assert len(with_random_validation("a", x, None, "here").held_out) == 10


def test_the_published_training_set() -> None:
    x = numbered(100)
    whole = with_random_validation("a", x, x[:7], "here").published_train
    assert torch.equal(numbers(whole).sort().values, torch.arange(100))
    assert len(with_random_validation("a", x, None, "here").published_train) == 90, "held-out images are not part of it"
    assert len(Dataset("a", x[:80], x[80:], x[:7], "a published split").published_train) == 80


def test_subset_takes_the_first_and_says_so() -> None:
    dataset = with_random_validation("a", numbered(100), numbered(50), "here")
    small = dataset.subset(20, 5)
    assert (len(small.train), len(small.validation), len(small.held_out)) == (20, 5, 5)
    assert torch.equal(small.train, dataset.train[:20])
    assert small.source.startswith(dataset.source)
    assert "first 20" in small.source
    assert with_random_validation("a", numbered(100), None, "here").subset(20, 5).test is None
