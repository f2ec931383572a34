"""Temperatures fitted on held-out codes: a known one comes back, and little evidence is not believed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from anytime.metrics.code_stats import bits_by_position
from anytime.model import AnytimeModel
from anytime.sampling.gumbel import gumbel
from anytime.training.temperature import fit

CATEGORIES = 30
TRUE = [0.6, 0.85, 0.97, 1.0, 1.1, 1.4, 1.9]


class Scaled:
    """A prior whose logits at position i are `scale[i]` times what they should be: those that its codes were drawn by."""

    codebook_size = CATEGORIES

    def __init__(self, n: int, scale: list[float], spread: float = 2.0) -> None:
        self.length, self.asked = len(scale), list[int]()
        self.right = spread * torch.randn(n, self.length, CATEGORIES, generator=torch.Generator().manual_seed(n))
        noise = [gumbel(n, torch.arange(n), position, CATEGORIES) for position in range(self.length)]
        self.codes = (self.right + torch.stack(noise, 1)).argmax(-1)
        self.logits = self.right * torch.tensor(scale)[:, None]

    def __call__(self, codes: Tensor) -> Tensor:
        first = sum(self.asked)
        self.asked.append(len(codes))
        return self.logits[first : first + len(codes)]

    def start(self, batch: int) -> object:
        raise NotImplementedError

    def step(self, codes: Tensor | None, state: object) -> tuple[Tensor, object]:
        raise NotImplementedError


def bits(logits: Tensor, codes: Tensor) -> list[float]:
    nats = -logits.double().log_softmax(-1).gather(2, codes[..., None])[..., 0].mean(0)
    found: list[float] = (nats / math.log(2)).tolist()
    return found


def test_a_known_temperature_comes_back() -> None:
    prior = Scaled(6000, TRUE)
    found = fit(prior, prior.codes)
    assert found.temperature == pytest.approx(TRUE, rel=0.05)
    assert found.examples == 6000
    assert found.bits == pytest.approx(bits(prior.logits, prior.codes), abs=1e-5)
    assert found.fitted_bits == pytest.approx(bits(prior.right, prior.codes), abs=2e-3)
    assert sum(prior.asked) == 6000, "the logits pass by once"
    assert max(prior.asked) < 500, "and never all of them at the same time"


def test_it_is_the_lowest_point() -> None:
    """Held against bits at temperatures a little to the left and right, exactly computed; the pull towards 1 is weak here."""
    prior = Scaled(6000, [0.7, 1.0, 1.5])
    fitted = torch.tensor(fit(prior, prior.codes).temperature)[:, None]
    here, cooler, warmer = (torch.tensor(bits(prior.logits / (fitted * by), prior.codes)) for by in (1, 0.97, 1.03))
    assert (here < cooler).all()
    assert (here < warmer).all()


def test_what_lies_beyond_the_range_is_brought_back_to_its_end() -> None:
    prior = Scaled(3000, [0.2, 4.0], spread=3.0)
    assert fit(prior, prior.codes).temperature == pytest.approx([0.5, 2.0], rel=0.02)


def test_few_examples_are_not_believed() -> None:
    """Of a prior that is right; alone, four examples would ask for a temperature at the end of the range."""
    for n in (1, 2, 4):
        prior = Scaled(n, [1.0] * 40)
        found = fit(prior, prior.codes)
        assert found.temperature == pytest.approx([1.0] * 40, abs=0.3)
        assert all(torch.tensor(found.fitted_bits).isfinite())


def test_a_code_that_is_always_the_likeliest_is_still_given_a_finite_one() -> None:
    prior = Scaled(400, [1.0])
    prior.codes = prior.logits.argmax(-1)
    (found,) = fit(prior, prior.codes).temperature
    assert 0.5 <= found < 0.8


def test_nothing_is_promised_of_a_prior_that_is_right() -> None:
    """Bits are those of examples that the temperatures were not fitted on: no better than at temperature 1, only by chance."""
    prior = Scaled(100, [1.0] * 60)
    found = fit(prior, prior.codes)
    assert sum(found.fitted_bits) >= sum(found.bits)
    assert sum(bits(prior.logits / torch.tensor(found.temperature)[:, None], prior.codes)) < sum(found.bits), "on its own"


def test_the_bits_of_a_real_prior(tiny: AnytimeModel) -> None:
    codes = torch.randint(16, (37, 8), generator=torch.Generator().manual_seed(0))
    assert fit(tiny.prior, codes).bits == pytest.approx(bits_by_position(tiny.prior, codes), rel=1e-5)
