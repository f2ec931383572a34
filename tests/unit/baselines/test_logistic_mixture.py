from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anytime.baselines.logistic_mixture import log_likelihood, mixture_parameter_count, parse_mixture, sample_pixel
from anytime.core import random

GRID = torch.arange(256, dtype=torch.float64) / 255 * 2 - 1


def parameters(channels: int, seed: int, scale: float = 1.0) -> Tensor:
    numbers = torch.randn(
        mixture_parameter_count(channels, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return numbers * scale


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_levels_of_one_pixel_sum_to_one(seed: int, scale: float) -> None:
    mixture = parse_mixture(parameters(1, seed, scale).expand(256, -1), 1)
    assert log_likelihood(mixture, GRID[:, None]).exp().sum().item() == pytest.approx(1, abs=1e-9)


def test_so_do_all_pairs_of_two_channels() -> None:
    """65,536 of them: the second channel's mean follows the first one's value."""
    x = torch.cartesian_prod(GRID, GRID)
    mixture = parse_mixture(parameters(2, 0).expand(len(x), -1), 2)
    assert mixture.channel_coeffs.abs().min() > 0.05
    assert log_likelihood(mixture, x).exp().sum().item() == pytest.approx(1, abs=1e-9)


def test_a_colour_pixel_is_its_channels_one_after_the_other() -> None:
    """The sum over the third channel of p(r, g, b) is p(r, g), which knows nothing of the third channel's parameters."""
    whole = parse_mixture(parameters(3, 1).expand(256, -1), 3)
    first_two = parse_mixture(
        torch.cat([whole.weights[0], whole.means[0, :2].flatten(), whole.log_scales[0, :2].flatten(), torch.zeros(4)]).double(),
        2,
    )
    first_two.channel_coeffs.copy_(whole.channel_coeffs[0, :1])
    pixel = torch.tensor([GRID[40], GRID[200]], dtype=torch.float64)
    x = torch.cat([pixel.expand(256, 2), GRID[:, None]], 1)
    marginal = log_likelihood(whole, x).exp().sum().item()
    assert marginal == pytest.approx(log_likelihood(first_two, pixel).exp().item(), rel=1e-9)


def test_a_narrow_mixture_puts_its_mass_on_the_nearest_level_and_stays_finite() -> None:
    one = torch.tensor([0.0, GRID[77] + 0.001, -50.0], dtype=torch.float64)
    log = log_likelihood(parse_mixture(one.expand(256, -1), 1), GRID[:, None])
    assert log.isfinite().all()
    assert log.argmax() == 77
    assert log.exp()[76:79].sum() > 0.99


@pytest.mark.parametrize("seed", range(3))
def test_samples_follow_the_mixture(seed: int) -> None:
    """Rounding and clamping a logistic draw is drawing a level: 40,000 draws of a pixel of two channels, channel by channel."""
    count, given = 40_000, parameters(2, seed)
    uniforms = random.uniform(seed, torch.arange(count)[:, None], 0, torch.arange(4 + 2)).double()
    x = sample_pixel(parse_mixture(given.expand(count, -1), 2), uniforms)
    levels = ((x + 1) / 2 * 255).round().long()
    torch.testing.assert_close(GRID[levels], x)
    pairs = torch.cartesian_prod(GRID, GRID)
    probabilities = log_likelihood(parse_mixture(given.expand(len(pairs), -1), 2), pairs).exp().view(256, 256)
    for channel in (0, 1):
        expected = probabilities.sum(1 - channel) * count
        observed = torch.bincount(levels[:, channel], minlength=256)
        usual = expected > 10
        chi_square = ((observed - expected).square() / expected)[usual].sum().item()
        freedom = int(usual.sum()) - 1
        assert chi_square <= freedom + 5 * (2 * freedom) ** 0.5
    product = (x[:, 0] * x[:, 1]).mean().item()
    assert product == pytest.approx(float((pairs.prod(1) * probabilities.flatten()).sum()), abs=0.02), (
        "the channels are correlated"
    )


@pytest.mark.parametrize(("channels", "count"), [(1, 30), (2, 60), (3, 100)])
def test_numbers_per_pixel(channels: int, count: int) -> None:
    assert mixture_parameter_count(channels, 10) == count
