from __future__ import annotations

import math

import pytest
import torch

from anytime.baselines.continuous_transformer import ContinuousConfig, ContinuousTransformer, quantile_components, sinusoids
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


def test_components_resolve_a_spike_and_reach_the_rest() -> None:
    generator = torch.Generator().manual_seed(0)
    spike, rest = torch.rand(80_000, generator=generator), 255 * torch.rand(20_000, generator=generator)
    means, scales = quantile_components(torch.cat([spike, rest]), 10)
    narrow = (means < 1) & (scales < 0.5)
    assert int(narrow.sum()) >= 3
    assert float(means.max()) > 200
    assert bool((scales > 0).all())
    assert quantile_components(torch.zeros(100), 3)[1].isfinite().all(), "all values alike"


def test_a_narrow_component_moves_in_units_of_its_own_width() -> None:
    torch.manual_seed(0)
    prior = ContinuousTransformer(SMALL).eval()
    prior.component_means.copy_(torch.tensor([-1.0, 0.0, 2.0]))
    prior.component_scales.copy_(torch.tensor([1e-3, 1e-1, 1.0]))
    with torch.no_grad():
        prior.head.bias.unflatten(0, (3, -1))[1] += 1
        prior.head.weight.zero_()
    found = prior(torch.randn(2, 7))
    torch.testing.assert_close(found.means[0, 0, 0], torch.tensor([-0.999, 0.1, 3.0]))
    torch.testing.assert_close(found.log_scales[0, 0, 0].exp(), torch.tensor([1e-3, 1e-1, 1.0]))


def test_sinusoids_tell_coordinates_apart_and_turn_a_shift_into_a_linear_map() -> None:
    grid = torch.cartesian_prod(torch.arange(6), torch.arange(6))
    found = sinusoids(grid, 32)
    assert found.shape == (36, 32)
    assert float(torch.cdist(found, found).fill_diagonal_(9).min()) > 0.1
    first, second = grid[:, 0] < 5, grid[:, 0] > 0  # each place and the one below
    shift = torch.linalg.lstsq(found[first].double(), found[second].double(), driver="gelsd").solution
    torch.testing.assert_close(found[first].double() @ shift, found[second].double(), atol=1e-4, rtol=0)
    assert sinusoids(torch.arange(4)[:, None], 5).shape == (4, 5), "an odd width is padded"


@pytest.mark.parametrize("change", [{"mixtures": 0}, {"layers": 0}, {"heads": 3}, {"length": 0}])
def test_shapes_that_cannot_be(change: dict[str, int]) -> None:
    with pytest.raises(UserError, match="prior"):
        ContinuousConfig(**{"length": 7, "width": 16, "heads": 2, **change})
