"""Law 4 for the continuous prior: one cached step equals the full pass; no mixture depends on a later value."""

from __future__ import annotations

import pytest
import torch

from anytime.baselines.continuous_transformer import ContinuousConfig, ContinuousTransformer

SMALL = ContinuousConfig(length=7, layers=2, width=16, hidden=32, heads=2, mixtures=3, dropout=0.0)


@pytest.fixture
def prior() -> ContinuousTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = ContinuousTransformer(SMALL).double().eval()
    made.standardise(torch.linspace(-5, 5, 7), torch.linspace(0.5, 20, 7))
    return made


@pytest.fixture
def values() -> torch.Tensor:
    return 8 * torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_no_mixture_depends_on_its_own_or_a_later_value(prior: ContinuousTransformer, values: torch.Tensor) -> None:
    values.requires_grad_()
    for position in range(7):
        (gradient,) = torch.autograd.grad(prior(values).means[:, position].sum(), values, allow_unused=position == 0)
        assert (gradient[:, position:] == 0).all(), f"mixture {position} depends on a later value"
        assert (gradient[:, :position] != 0).all(), f"mixture {position} does not depend on all values before"


@torch.no_grad()
def test_steps_equal_the_full_pass(prior: ContinuousTransformer, values: torch.Tensor) -> None:
    whole, state = prior(values), prior.start(4)
    for position in range(7):
        mixture, state = prior.step(values[:, position - 1] if position else None, state)
        torch.testing.assert_close(mixture.means, whole.means[:, position], atol=1e-10, rtol=0)
        torch.testing.assert_close(mixture.weights, whole.weights[:, position], atol=1e-10, rtol=0)
        torch.testing.assert_close(mixture.log_scales, whole.log_scales[:, position], atol=1e-10, rtol=0)
    with pytest.raises(ValueError, match="all 7 values are sampled"):
        prior.step(values[:, 6], state)
