from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from anytime.autoencoders.truncation import Full
from anytime.core.errors import UserError
from anytime.training.stages import AutoencoderStage, PriorStage
from anytime.training.tasks.prior import prior_lr

STAGE = PriorStage(epochs=1, lr=2e-3, warmup=3000)
LONG = 100_000


def test_lr_warms_up_linearly_from_1e_minus_7() -> None:
    assert prior_lr(STAGE, 0, LONG) == 1e-7
    assert prior_lr(STAGE, 1500, LONG) == pytest.approx((1e-7 + 2e-3) / 2)
    lrs = [prior_lr(STAGE, step, LONG) for step in range(0, 3001, 500)]
    gaps = [b - a for a, b in pairwise(lrs)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps))


def test_lr_decays_with_the_root_of_the_step() -> None:
    assert prior_lr(STAGE, 3000, LONG) == 2e-3
    assert prior_lr(STAGE, 12_000, LONG) == pytest.approx(1e-3)
    assert prior_lr(STAGE, 48_000, LONG) == pytest.approx(5e-4)
    assert prior_lr(STAGE, 2999, LONG) == pytest.approx(2e-3, rel=1e-3), "no jump"


def test_a_short_schedule_warms_up_for_a_quarter_of_its_steps() -> None:
    assert prior_lr(STAGE, 100, 400) == 2e-3
    assert prior_lr(STAGE, 99, 400) < 2e-3
    assert max(prior_lr(STAGE, step, 400) for step in range(400)) == 2e-3


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_the_shortest_schedules_have_an_lr(steps: int) -> None:
    lrs = [prior_lr(STAGE, step, steps) for step in range(steps)]
    assert all(0 < lr <= 2e-3 for lr in lrs)
    assert len(lrs) < 2 or lrs[1] == 2e-3


def test_a_constant_schedule_stays_where_the_warm_up_led() -> None:
    stage = PriorStage(epochs=1, lr=3e-4, warmup=10, lr_schedule="constant")
    assert prior_lr(stage, 5, LONG) == pytest.approx(1.5e-4, rel=1e-3)
    assert {prior_lr(stage, step, LONG) for step in (10, 11, 500, 90_000)} == {3e-4}


@pytest.mark.parametrize("change", [{"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"lr": float("nan")}])
def test_a_stage_without_length_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="`epochs`, `batch` and `lr` above zero"):
        AutoencoderStage(**{"epochs": 1, "truncation": Full()} | change)
    with pytest.raises(UserError, match="`epochs`, `batch` and `lr` above zero"):
        PriorStage(**{"epochs": 1} | change)


@pytest.mark.parametrize("change", [{"warmup": 0}, {"weight_decay": -0.1}])
def test_a_prior_stage_names_what_is_wrong(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="warmup"):
        PriorStage(**{"epochs": 1} | change)
