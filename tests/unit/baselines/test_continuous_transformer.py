from __future__ import annotations

import math

import pytest
import torch

from anytime.baselines.continuous_transformer import ContinuousConfig, ContinuousTransformer
from anytime.baselines.logistic_mixture import LogisticMixture, log_density, mixture_parameter_count, parse_mixture, sample_real
from anytime.core.errors import UserError

SMALL = ContinuousConfig(length=7, layers=2, width=16, hidden=32, heads=2, mixtures=3, dropout=0.0)


@pytest.fixture
def prior() -> ContinuousTransformer:
    torch.manual_seed(0)
    made = ContinuousTransformer(SMALL).double().eval()
    made.standardise(torch.linspace(-5, 5, 7), torch.linspace(0.5, 20, 7))
    return made


@pytest.fixture
def values() -> torch.Tensor:
    return 8 * torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def mixture(seed: int) -> LogisticMixture:
    parameters = torch.randn(mixture_parameter_count(1, 5), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return parse_mixture(parameters, channels=1)


@pytest.mark.parametrize("seed", range(4))
def test_the_mixture_integrates_to_one(seed: int) -> None:
    x = torch.linspace(-400, 400, 800_001, dtype=torch.float64)
    one = mixture(seed)
    wide = LogisticMixture(
        *(part.expand(len(x), *part.shape) for part in (one.weights, one.means, one.log_scales, one.channel_coeffs))
    )
    assert float(torch.trapezoid(log_density(wide, x).exp(), x)) == pytest.approx(1, abs=1e-6)


def test_draws_follow_the_mixtures_distribution_function() -> None:
    one, n = mixture(0), 20_000
    wide = LogisticMixture(
        *(part.expand(n, *part.shape) for part in (one.weights, one.means, one.log_scales, one.channel_coeffs))
    )
    sampled = sample_real(wide, torch.rand(n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
    for edge in (-2.0, -0.5, 0.0, 0.7, 3.0):
        below = torch.sigmoid((edge - one.means[0]) * torch.exp(-one.log_scales[0]))
        expected = float((one.weights.softmax(-1) * below).sum())
        assert float((sampled < edge).double().mean()) == pytest.approx(expected, abs=0.015)


def test_the_density_far_out_is_finite() -> None:
    assert bool(torch.isfinite(log_density(mixture(0), torch.tensor(1e4, dtype=torch.float64))))


@torch.no_grad()
def test_each_conditional_integrates_to_one_in_the_values_own_unit(prior: ContinuousTransformer, values: torch.Tensor) -> None:
    """Standardisation is corrected for: whatever position's value is swept, its density has mass one."""
    grid = torch.linspace(-1500, 1500, 30_001, dtype=torch.float64)
    for position in (0, 3, 6):
        swept = values[:1].repeat(len(grid), 1)[:, : position + 1]
        swept[:, position] = grid
        densities = prior.log_likelihood(swept)[:, position].exp()
        assert float(torch.trapezoid(densities, grid)) == pytest.approx(1, abs=1e-3)


def test_a_row_of_a_sample_does_not_see_how_many_follow() -> None:
    torch.manual_seed(0)
    prior = ContinuousTransformer(SMALL).eval()
    many, few = prior.sample(9, seed=5), prior.sample(2, seed=5)
    torch.testing.assert_close(many[:2], few)
    assert not torch.equal(many[0], many[1])
    assert not torch.equal(prior.sample(2, seed=6), few)


@torch.no_grad()
def test_a_unit_changes_the_bits_by_its_logarithm() -> None:
    """The same density of values sixteen times larger costs four more bits per value."""
    torch.manual_seed(0)
    prior = ContinuousTransformer(SMALL).eval()
    values = torch.randn(5, 7)
    bits = prior.bits_per_dim(values)
    prior.standardise(torch.zeros(7), torch.full((7,), 16.0))
    torch.testing.assert_close(prior.bits_per_dim(16 * values), bits + 4)


def test_a_known_gaussians_bits_are_met() -> None:
    """Chained normal numbers, x_i = 0.8 x_{i-1} + noise: the entropy is that of the noise, from the second number on."""
    torch.manual_seed(0)
    config = ContinuousConfig(length=4, layers=1, width=32, hidden=64, heads=2, mixtures=3, dropout=0.0)
    prior, sigma, carry = ContinuousTransformer(config), 3.0, 0.8

    def chain(n: int) -> torch.Tensor:
        x = [sigma / math.sqrt(1 - carry**2) * torch.randn(n)]
        for _ in range(3):
            x.append(carry * x[-1] + sigma * torch.randn(n))
        return torch.stack(x, 1)

    prior.standardise(torch.zeros(4), torch.full((4,), sigma / math.sqrt(1 - carry**2)))
    optimizer = torch.optim.Adam(prior.parameters(), lr=3e-3)
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / 400)
        optimizer.zero_grad()
        prior.bits_per_dim(chain(256)).mean().backward()
        optimizer.step()
    noise = 0.5 * math.log2(2 * math.pi * math.e * sigma**2)
    entropy = noise - 0.5 * math.log2(1 - carry**2) / 4
    with torch.no_grad():
        bits = float(prior.eval().bits_per_dim(chain(8000)).mean())
    assert bits == pytest.approx(entropy, abs=0.05)
    assert bits < noise - 0.5 * math.log2(1 - carry**2) - 0.3, "each number alone would cost more"


@pytest.mark.parametrize("change", [{"mixtures": 0}, {"layers": 0}, {"heads": 3}, {"length": 0}])
def test_shapes_that_cannot_be(change: dict[str, int]) -> None:
    with pytest.raises(UserError, match="prior"):
        ContinuousConfig(**{"length": 7, "width": 16, "heads": 2, **change})
