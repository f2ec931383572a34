from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from anytime.autoencoders.truncation import Full, Uniform
from anytime.core.errors import UserError
from anytime.training.stages import ORDERED, PIXELCNN, PRETRAIN, PRIOR, AutoencoderStage, PriorStage, warmed_rate

STAGE = PriorStage(epochs=1, rate=2e-3, warmup=3000)
LONG = 100_000


def test_the_rate_warms_up_in_a_line_from_1e_minus_7() -> None:
    assert warmed_rate(STAGE, 0, LONG) == 1e-7
    assert warmed_rate(STAGE, 1500, LONG) == pytest.approx((1e-7 + 2e-3) / 2)
    rates = [warmed_rate(STAGE, step, LONG) for step in range(0, 3001, 500)]
    gaps = [b - a for a, b in pairwise(rates)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps))


def test_it_reaches_its_rate_and_falls_with_the_root_of_the_step() -> None:
    assert warmed_rate(STAGE, 3000, LONG) == 2e-3
    assert warmed_rate(STAGE, 12_000, LONG) == pytest.approx(1e-3)
    assert warmed_rate(STAGE, 48_000, LONG) == pytest.approx(5e-4)
    assert warmed_rate(STAGE, 2999, LONG) == pytest.approx(2e-3, rel=1e-3), "no jump"


def test_a_short_schedule_warms_up_for_a_quarter_of_its_steps() -> None:
    assert warmed_rate(STAGE, 100, 400) == 2e-3
    assert warmed_rate(STAGE, 99, 400) < 2e-3
    assert max(warmed_rate(STAGE, step, 400) for step in range(400)) == 2e-3


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_the_shortest_schedules_have_rates(steps: int) -> None:
    rates = [warmed_rate(STAGE, step, steps) for step in range(steps)]
    assert all(0 < rate <= 2e-3 for rate in rates)
    assert len(rates) < 2 or rates[1] == 2e-3


def test_a_constant_schedule_stays_where_the_warm_up_led() -> None:
    stage = PriorStage(epochs=1, rate=3e-4, warmup=10, schedule="constant")
    assert warmed_rate(stage, 5, LONG) == pytest.approx(1.5e-4, rel=1e-3)
    assert {warmed_rate(stage, step, LONG) for step in (10, 11, 500, 90_000)} == {3e-4}
    assert warmed_rate(PIXELCNN, 1, LONG) == warmed_rate(PIXELCNN, 90_000, LONG) == 3e-4


def test_the_three_stages() -> None:
    assert (PRETRAIN.truncation, ORDERED.truncation) == (Full(), Uniform())
    assert (PRETRAIN.epochs, ORDERED.epochs, PRIOR.epochs) == (200, 200, 50)


@pytest.mark.parametrize("change", [{"epochs": 0}, {"batch": 0}, {"rate": 0.0}, {"rate": float("nan")}])
def test_a_stage_without_length_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="epochs, batch and rate above zero"):
        AutoencoderStage(**{"epochs": 1, "truncation": Full()} | change)
    with pytest.raises(UserError, match="epochs, batch and rate above zero"):
        PriorStage(**{"epochs": 1} | change)


@pytest.mark.parametrize("change", [{"warmup": 0}, {"weight_decay": -0.1}])
def test_a_prior_stage_names_what_is_wrong(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="warmup"):
        PriorStage(**{"epochs": 1} | change)
