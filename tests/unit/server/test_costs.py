from __future__ import annotations

import pytest

from anytime.server.costs import STALE_SECONDS, CostModel, Curve
from anytime.server.scheduler import Job


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def model(clock: Clock | None = None) -> CostModel:
    """Steps of 1 ms and 0.1 ms a row; decodes of 0.5 ms a row."""
    step = Curve({rows: 0.001 + 0.0001 * rows for rows in (1, 8, 64, 256)})
    return CostModel(step, Curve({rows: 0.0005 * rows for rows in (1, 4, 8, 64)}), clock=clock or Clock())


def test_batches_are_as_large_as_pays_and_decodes_as_short_as_needed() -> None:
    costs = model()
    assert costs.batch == 256, "a row in 64 costs 1.16 times as much"
    assert costs.chunk == 8, "64 rows would take 32 ms"
    assert costs.decode(20) == pytest.approx(2 * 0.004 + 0.002)


def test_the_speed_of_the_machine_is_followed() -> None:
    costs = model()
    for _ in range(200):
        costs.add_step(8, 2 * 0.0018)
    assert costs.slowdown == pytest.approx(2)
    assert costs.step(64) == pytest.approx(2 * 0.0074)
    assert costs.decode(8) == pytest.approx(2 * 0.004), "decodes slow down with the steps"
    assert costs.delay(1.0) == pytest.approx(0, abs=0.02), "what is usual is no delay"


def test_delays_are_expected_again_and_forgotten_when_nothing_is_measured() -> None:
    clock = Clock()
    costs = model(clock)
    for index in range(40):
        costs.add_step(8, 0.0018 + (0.004 if index % 4 == 0 else 0.0))
    once, fraction = costs.delay_line
    assert once == pytest.approx(0.004)
    assert fraction == pytest.approx(0.004 / (4 * 0.0018), rel=0.01)
    clock.now += STALE_SECONDS + 0.01
    assert costs.delay_line == (0.0, 0.0), "a server that refuses everything measures nothing"
    costs.add_step(8, 0.0018)
    assert costs.delay(1.0) == 0


def test_joining_counts_by_itself() -> None:
    """On a GPU a new request costs more than the step that it joins: that is neither a slow machine nor a delay."""
    costs = CostModel(Curve({1: 0.001, 64: 0.001}), Curve({1: 0.001, 64: 0.001}), Curve({1: 0.002, 64: 0.004}), clock=Clock())
    for _ in range(50):
        costs.add_step(65, 0.0071, [1, 64])
        costs.add_step(65, 0.001)
    assert costs.slowdown == pytest.approx(1, abs=0.05)
    assert costs.delay(1.0) == pytest.approx(0, abs=0.05)
    job = Job(1, costs, 64, 16, 200.0, 100.0)
    job.price()
    assert job.mandatory == pytest.approx(0.001 + 0.004 + 0.001, rel=0.05)
    job.has_slots, job.count = True, 1
    job.price()
    assert job.mandatory == pytest.approx(0.001, rel=0.05)
