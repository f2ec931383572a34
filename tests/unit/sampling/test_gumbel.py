from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anytime.core.errors import UserError
from anytime.sampling.gumbel import GumbelNoise, SamplingSettings, filter_logits, gumbel, gumbel_argmax

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
GOLDEN = [[26, 29, 21, 12], [47, 11, 19, 48], [6, 32, 37, 18]]  # codes of rows 0–3 at positions 0, 1, 2


def frequencies(settings: SamplingSettings, count: int = 20_000, seed: int = 1, position: int = 0) -> torch.Tensor:
    sampled = gumbel_argmax(LOGITS.expand(count, -1), settings, gumbel(seed, torch.arange(count), position, LOGITS.shape[-1]))
    return torch.bincount(sampled, minlength=len(LOGITS)).double()


def assert_sampled_from(observed: torch.Tensor, expected: torch.Tensor) -> None:
    """Chi-square within five standard deviations of its mean; no impossible category sampled."""
    expected = expected.double() / expected.sum() * observed.sum()
    possible = expected > 0
    assert (observed[~possible] == 0).all()
    statistic = ((observed - expected).square() / expected)[possible].sum().item()
    freedom = int(possible.sum()) - 1
    assert statistic <= freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_samples_follow_the_softmax(temperature: float) -> None:
    assert_sampled_from(frequencies(SamplingSettings(temperature=temperature)), (LOGITS / temperature).softmax(0))


@pytest.mark.parametrize(("seed", "position"), [(0, 0), (2**40 + 1, 0), (1, 69)])
def test_samples_follow_the_softmax_at_every_seed_and_position(seed: int, position: int) -> None:
    assert_sampled_from(frequencies(SamplingSettings(), seed=seed, position=position), LOGITS.softmax(0))


def test_samples_of_the_top_k() -> None:
    expected = LOGITS.softmax(0).clone()
    expected[3:] = 0
    assert_sampled_from(frequencies(SamplingSettings(top_k=3)), expected)


def test_samples_of_the_top_p() -> None:
    expected = LOGITS.softmax(0).clone()  # 0.57, 0.21, 0.13, 0.08, …
    expected[2:] = 0
    assert_sampled_from(frequencies(SamplingSettings(top_p=0.7)), expected)


def test_noise_is_gumbel() -> None:
    noise = gumbel(0, torch.arange(2_000), 3, 20).flatten().double()
    assert noise.mean().item() == pytest.approx(0.5772156649, abs=0.03)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, rel=0.03)


def test_noise_golden_values() -> None:
    """Frozen: other noise would change every sample of every seed."""
    logits = torch.zeros(4, 50)
    sampled = [
        gumbel_argmax(logits, SamplingSettings(), gumbel(0, torch.arange(4), position, logits.shape[-1])).tolist()
        for position in range(3)
    ]
    assert sampled == GOLDEN


def finite(logits: torch.Tensor) -> list[int]:
    return logits[0].isfinite().nonzero()[:, 0].tolist()


def test_temperature_divides() -> None:
    torch.testing.assert_close(filter_logits(LOGITS[None], SamplingSettings(temperature=0.25)), LOGITS[None] * 4)


@pytest.mark.parametrize(("top_k", "kept"), [(1, [0]), (2, [0, 1]), (6, [0, 1, 2, 3, 4, 5]), (7, [0, 1, 2, 3, 4, 5])])
def test_top_k_keeps_the_largest(top_k: int, kept: list[int]) -> None:
    assert finite(filter_logits(LOGITS[None], SamplingSettings(top_k=top_k))) == kept


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1e-6, [0]), (0.5, [0]), (0.6, [0, 1]), (0.8, [0, 1, 2]), (0.9999, [0, 1, 2, 3, 4, 5]), (1.0, [0, 1, 2, 3, 4, 5])],
)
def test_top_p_keeps_the_fewest_that_reach_the_mass(top_p: float, kept: list[int]) -> None:
    """Shares 0.57, 0.21, 0.13, 0.08, 0.03, 0.004."""
    assert finite(filter_logits(LOGITS[None], SamplingSettings(top_p=top_p))) == kept


def test_each_row_is_filtered_by_its_own_order() -> None:
    rows = torch.stack([LOGITS, LOGITS.flip(0), LOGITS.roll(2)])
    for settings, count in ((SamplingSettings(top_k=2), 2), (SamplingSettings(top_p=0.8), 3)):
        found = filter_logits(rows, settings)
        for logits, cut in zip(rows, found, strict=True):
            best = logits.topk(count).indices.sort().values
            assert cut.isfinite().nonzero()[:, 0].tolist() == best.tolist()
            assert torch.equal(cut[best], logits[best])


def test_the_order_is_temperature_then_top_k_then_top_p() -> None:
    """At temperature 4 shares are flat, so that 0.5 of the mass takes two of the top three; untempered, one would do."""
    assert finite(filter_logits(LOGITS[None], SamplingSettings(temperature=4.0, top_k=3, top_p=0.5))) == [0, 1]
    assert finite(filter_logits(LOGITS[None], SamplingSettings(top_k=3, top_p=0.5))) == [0]
    # Of the top two alone, the first has 0.73: with top-p before top-k, 0.7 would keep both.
    assert finite(filter_logits(LOGITS[None], SamplingSettings(top_k=2, top_p=0.7))) == [0]
    assert finite(filter_logits(LOGITS[None], SamplingSettings(top_p=0.7))) == [0, 1]


def test_low_temperature_and_top_1_are_greedy() -> None:
    for settings in (SamplingSettings(temperature=1e-3), SamplingSettings(top_k=1), SamplingSettings(top_p=1e-6)):
        assert frequencies(settings, 500)[0] == 500


@given(
    temperature=st.floats(0.01, 100),
    top_k=st.none() | st.integers(1, 30),
    top_p=st.none() | st.floats(1e-6, 1),
    seed=st.integers(0, 99),
)
def test_a_category_always_remains(temperature: float, top_k: int | None, top_p: float | None, seed: int) -> None:
    logits = 10 * torch.randn(4, 20, generator=torch.Generator().manual_seed(seed))
    settings = SamplingSettings(temperature=temperature, top_k=top_k, top_p=top_p)
    cut = filter_logits(logits, settings)
    assert cut.isfinite().any(1).all()
    assert torch.equal(cut.argmax(1), logits.argmax(1))
    sampled = gumbel_argmax(logits, settings, gumbel(seed, torch.arange(4), 0, logits.shape[-1]))
    assert cut.gather(1, sampled[:, None]).isfinite().all()


def test_half_precision_logits_are_filtered_in_float32() -> None:
    assert filter_logits(LOGITS[None].bfloat16(), SamplingSettings(temperature=0.3)).dtype == torch.float32


def test_only_a_near_tie_can_flip() -> None:
    """Rounding of size ε changes a code only if the two best noised logits are within 2 ε of each other."""
    epsilon, count = 1e-3, 20_000
    logits = torch.randn(count, 30, generator=torch.Generator().manual_seed(0))
    rounded = logits + epsilon * (2 * torch.rand(count, 30, generator=torch.Generator().manual_seed(1)) - 1)
    rows = torch.arange(count)
    one, other = (gumbel_argmax(x, SamplingSettings(), gumbel(0, rows, 0, x.shape[-1])) for x in (logits, rounded))
    flipped = one != other
    assert 0 < flipped.sum() < 4 * epsilon * count
    best = (logits + gumbel(0, rows, 0, 30)).topk(2).values
    assert (best[flipped, 0] - best[flipped, 1] <= 2 * epsilon + 1e-5).all()


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"temperature": 0.0}, "`temperature`"),
        ({"temperature": -1.0}, "`temperature`"),
        ({"temperature": 101.0}, "`temperature`"),
        ({"temperature": math.nan}, "`temperature`"),
        ({"top_k": 0}, "`top_k`"),
        ({"top_p": 0.0}, "`top_p`"),
        ({"top_p": 1.01}, "`top_p`"),
        ({"top_p": math.nan}, "`top_p`"),
    ],
)
def test_impossible_settings_name_their_argument(settings: dict[str, Any], argument: str) -> None:
    with pytest.raises(UserError, match=f"^{argument} must be .* not "):
        SamplingSettings(**settings)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_noise_for_many_positions_equals_noise_for_each(rows: int) -> None:
    numbers = torch.arange(rows) + 5
    noise = GumbelNoise(7, numbers, 1000)
    for position in (0, 1, 17, 16, 40, 3):
        assert torch.equal(noise.at(position), gumbel(7, numbers, position, 1000))
