from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from anytime.sampling.noise import Settings, draw
from anytime.sampling.sampler import BLOCK, Sample, sample_codes


@dataclass
class FakePrior:
    """Logits that are all equal, and a record of what it was told. The state is the number of steps."""

    length: int = 6
    codebook_size: int = 9
    told: list[Tensor | None] = field(default_factory=list)

    def __call__(self, codes: Tensor) -> Tensor:
        return torch.zeros(*codes.shape, self.codebook_size)

    def start(self, batch: int) -> tuple[int, int]:
        return batch, 0

    def step(self, codes: Tensor | None, state: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        batch, done = state
        assert done < self.length
        self.told.append(None if codes is None else codes.clone())
        return torch.zeros(batch, self.codebook_size), (batch, done + 1)


def sampled(
    prior: FakePrior, rows: Tensor, count: int, prefix: Tensor | None = None, seed: int = 0, **settings: float
) -> Tensor:
    prefix = torch.empty(len(rows), 0, dtype=torch.long) if prefix is None else prefix
    return sample_codes(prior, rows, count, seed=seed, settings=Settings(**settings), prefix=prefix)


def test_codes_are_the_noise_of_their_address() -> None:
    rows = torch.tensor([3, 0, 511, 7])
    codes = sampled(FakePrior(), rows, 6, seed=5)
    for position in range(6):
        assert torch.equal(codes[:, position], draw(torch.zeros(4, 9), Settings(), 5, rows, position))


def test_the_prior_is_told_nothing_first_and_then_every_code_in_order() -> None:
    prior = FakePrior()
    codes = sampled(prior, torch.arange(4), 6)
    assert prior.told[0] is None
    assert torch.equal(torch.stack([told for told in prior.told[1:] if told is not None], 1), codes[:, :5])


def test_no_step_is_spent_beyond_the_budget() -> None:
    prior = FakePrior()
    assert sampled(prior, torch.arange(4), 2).shape == (4, 2)
    assert len(prior.told) == 2


def test_the_prefix_is_taken_over_and_told() -> None:
    prior, prefix = FakePrior(), torch.tensor([[8, 7, 6], [0, 1, 2]])
    codes = sampled(prior, torch.arange(2), 5, prefix)
    assert torch.equal(codes[:, :3], prefix)
    told = torch.stack([told for told in prior.told[1:] if told is not None], 1)
    assert torch.equal(told, codes[:, :4])
    assert torch.equal(codes[:, 3:], sampled(FakePrior(), torch.arange(2), 5)[:, 3:]), "the noise is that of the position"


def test_a_prefix_as_long_as_the_budget_leaves_nothing_to_draw() -> None:
    prefix = torch.tensor([[8, 7, 6]])
    assert torch.equal(sampled(FakePrior(), torch.arange(1), 3, prefix), prefix)
    assert torch.equal(sampled(FakePrior(), torch.arange(1), 2, prefix), prefix[:, :2])


def test_equal_logits_give_equal_shares() -> None:
    codes = sampled(FakePrior(), torch.arange(2_000), 6)
    for position in range(6):
        counts = torch.bincount(codes[:, position], minlength=9).double()
        expected = 2_000 / 9
        assert ((counts - expected) ** 2 / expected).sum() < 8 + 5 * 4
    assert abs(torch.corrcoef(codes.double().T) - torch.eye(6)).max() < 5 / 2_000**0.5


def test_the_block_is_a_constant_of_the_format() -> None:
    assert BLOCK == 512, "another block size would change the bytes of bulk samples"


def test_pictures_as_bytes() -> None:
    data = torch.tensor([0.0, 0.5 / 255 - 1e-4, 0.5 / 255 + 1e-4, 0.5, 1.0]).view(1, 1, 1, 5)
    sample = Sample(data, torch.zeros(1, 1, dtype=torch.long), 0.0, 0, torch.arange(1), Settings(), "")
    assert sample.uint8().dtype == torch.uint8
    assert sample.uint8().flatten().tolist() == [0, 0, 1, 128, 255]


def test_a_sample_can_not_be_changed() -> None:
    sample = Sample(torch.zeros(1), torch.zeros(1, 1, dtype=torch.long), 0.0, 0, torch.arange(1), Settings(), "")
    with pytest.raises(AttributeError):
        sample.seed = 1  # type: ignore[misc]
