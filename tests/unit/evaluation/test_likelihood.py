from __future__ import annotations

import math

import pytest
import torch

from anytime.data.loader import to_float
from anytime.evaluation import likelihood
from anytime.evaluation.likelihood import bits_by_position, bits_per_dim, held_out_codes
from anytime.model import AnytimeModel
from anytime.priors.continuous import ContinuousConfig
from anytime.priors.dequantized import DensityConfig, DensityModel


class Uniform:
    """A prior that knows nothing."""

    length, codebook_size = 8, 16

    def __call__(self, codes: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*codes.shape, 16)

    def start(self, batch: int) -> object:
        raise NotImplementedError

    def step(self, codes: torch.Tensor | None, state: object) -> tuple[torch.Tensor, object]:
        raise NotImplementedError


def test_a_prior_that_knows_nothing_needs_every_bit() -> None:
    codes = torch.randint(16, (30, 8), generator=torch.Generator().manual_seed(0))
    assert bits_by_position(Uniform(), codes) == pytest.approx([4.0] * 8)


def test_bits_of_a_model_by_hand(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "BATCH", 4)
    x = torch.randint(256, (11, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    codes = held_out_codes(tiny, x)
    assert torch.equal(codes, tiny.encode(to_float(x)))
    with torch.no_grad():
        chances = tiny.prior(codes).softmax(-1)
    expected = [-sum(math.log2(float(chances[row, place, codes[row, place]])) for row in range(11)) / 11 for place in range(8)]
    assert bits_by_position(tiny.prior, codes) == pytest.approx(expected, rel=1e-4)
    assert len(set(expected)) == 8


@pytest.mark.parametrize("space", ["pixels", "pca"])
def test_bits_per_dimension_are_of_each_picture_and_its_own_noise(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever batches, whoever comes before; another seed dequantises otherwise."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        prior = ContinuousConfig(length=16, layers=1, width=8, hidden=16, heads=2, mixtures=2)
        model = DensityModel(DensityConfig(name="tiny", shape=(1, 4, 4), space=space, prior=prior)).eval()  # type: ignore[arg-type]
    x = torch.randint(256, (10, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    model.fit_space(x)
    whole = bits_per_dim(model, x, seed=3)
    monkeypatch.setattr(likelihood, "DENSITY_BATCH", 3)
    assert bits_per_dim(model, x, seed=3) == pytest.approx(whole, abs=1e-5)
    assert bits_per_dim(model, x, seed=4) != whole
    assert bits_per_dim(model, x[:5], seed=3) != pytest.approx(whole, abs=1e-5)
