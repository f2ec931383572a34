"""Law 9. `within=` is kept: with a fake clock exactly (late by at most one step and one decode), with a real one at p99.

The real clock is in tests/smoke; here time passes only where a step or a decode takes some.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anytime.model import AnytimeModel
from anytime.sampling.budget import Budget, DeadlineWarning
from anytime.sampling.engines.base import ActiveBatch, Request
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.latency import DELAY_WINDOW, LatencyEstimate
from anytime.sampling.session import Session

LENGTH = 50


@dataclass
class FakeEngine:
    """An engine whose steps and decodes take a given time on its own clock."""

    step_costs: list[float]  # in order, then the last one repeatedly
    decode_cost: float
    now: float = 100.0
    steps: int = 0
    name: str = "fake"
    precision: str = "fp32"
    block: int = 8
    microbatch: int = 8
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    cold: float = 0.0  # seconds of warm-up

    def clock(self) -> float:
        return self.now

    def is_warm(self, request: Request) -> bool:
        return self.cold == 0

    def warm_up(self, request: Request) -> None:
        self.now, self.cold = self.now + self.cold, 0.0

    def start(self, request: Request) -> ActiveBatch:
        return ActiveBatch(request)

    def step(self, rows: ActiveBatch, times: int = 1) -> None:
        for _ in range(times):
            self.now += self.step_costs[min(self.steps, len(self.step_costs) - 1)]
            self.steps += 1
            rows.steps_done += 1

    def codes(self, rows: ActiveBatch) -> Tensor:
        return torch.zeros(len(rows.request.rows), rows.count, dtype=torch.long)

    def decode(self, codes: Tensor) -> Tensor:
        self.now += self.decode_cost
        return codes.float()

    def wait(self) -> None:
        pass

    def release(self) -> None:
        pass


def spent(engine: FakeEngine, within: float, latency: LatencyEstimate | None = None) -> tuple[int, float]:
    """Return the codes and seconds of one request."""
    request = Request(torch.empty(4, 0, dtype=torch.long), torch.arange(4), 0, SamplingSettings(), "")
    session = Session(engine, latency or LatencyEstimate(), LENGTH, request)
    sample = session.run(Budget(codes=LENGTH, within=float(within)), clock=engine.clock)
    return sample.codes.shape[1], sample.seconds


def warm_up(step: float, decode: float) -> LatencyEstimate:
    return measured([float(step)] * 10, [float(decode)] * 10)


def measured(steps: list[float], decodes: list[float]) -> LatencyEstimate:
    latency = LatencyEstimate()
    for seconds in decodes:
        latency.add_decode(seconds)
    for seconds in steps:
        latency.add_step(seconds)
    return latency


@given(step=st.integers(1, 20), decode=st.integers(0, 40), within=st.integers(1, 1500))
def test_with_fixed_costs_all_time_is_used_and_never_exceeded(step: int, decode: int, within: int) -> None:
    """Integers, so that sums are exact: k codes fit if k steps and a decode do."""
    fits = min(LENGTH, (within - decode) // step)
    if fits < 1:
        with pytest.warns(DeadlineWarning, match="one code"):
            assert spent(FakeEngine([step], decode), within, warm_up(step, decode)) == (1, step + decode)
    else:
        assert spent(FakeEngine([step], decode), within, warm_up(step, decode)) == (fits, fits * step + decode)


@given(step=st.integers(1, 20), decode=st.integers(0, 40), within=st.integers(1, 1500))
def test_without_an_estimate_one_decode_is_measured_and_the_deadline_kept(step: int, decode: int, within: int) -> None:
    fits = min(LENGTH, (within - 2 * decode) // step)
    if step + decode > within:
        return
    if fits < 2:  # the decode that was measured is the answer
        assert spent(FakeEngine([step], decode), within) == (1, step + decode)
    else:
        assert spent(FakeEngine([step], decode), within) == (fits, fits * step + 2 * decode)


@given(
    costs=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    decode=st.integers(0, 30),
    within=st.integers(1, 900),
)
def test_with_any_costs_it_is_late_by_at_most_one_step_and_one_decode(costs: list[int], decode: int, within: int) -> None:
    """Irregular steps cannot be predicted; only the step and decode under way may overrun."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeadlineWarning)
        codes, seconds = spent(FakeEngine([float(c) for c in costs], decode), within, warm_up(1, decode))
    assert seconds <= max(within, 0) + max(costs) + decode
    if codes > 1:
        assert seconds - max(costs) - decode <= within


def test_more_time_never_gives_fewer_codes() -> None:
    counts = [spent(FakeEngine([3.0], 5.0), within, warm_up(3.0, 5.0))[0] for within in range(8, 200)]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == LENGTH


def test_steps_that_get_slower_are_not_underestimated() -> None:
    """Attention reads more with every code: after many short requests, most measured steps are early, fast ones."""
    for within in range(40, 160):
        latency = measured([1.0] * 64, [2.0] * 10)
        _, seconds = spent(FakeEngine([1.0 + i for i in range(LENGTH)], 2.0), within, latency)
        assert seconds <= within + 2, "late by no more than the growth of two steps"


def test_repeated_delays_are_reserved_for_and_a_single_one_is_not() -> None:
    def codes(*delays: float) -> int:
        return spent(FakeEngine([1.0], 1.0), 30, measured([*[1.0] * 8, *delays], [1.0] * 10))[0]

    assert codes(1.0, 1.0) == codes(9.0, 1.0) == 29, "one stall need not happen again"
    assert codes(9.0, 9.0) == 21, "two are the load of the machine"


def test_the_estimate_follows_the_load_within_a_few_steps() -> None:
    latency = measured([1.0] * 100, [1.0] * 10)
    for _ in range(2):
        latency.add_step(9.0)
    assert latency.step_and_decode == 10.0, "two delayed steps are enough"
    for _ in range(DELAY_WINDOW):
        latency.add_step(1.0)
    assert latency.step_and_decode == 2.0, "forgotten after as many undelayed ones"


def test_a_cold_engine_warms_up_before_the_deadline_starts_and_warns() -> None:
    engine = FakeEngine([2.0], 3.0, cold=500.0)
    with pytest.warns(DeadlineWarning, match="warmed up for 4 rows: 503 s"):
        assert spent(engine, 53) == (25, 53.0), "the warm-up measured a decode"
    assert spent(engine, 53, warm_up(2.0, 3.0)) == (25, 53.0), "already warm: no warning"


def test_budgets_combine(model: AnytimeModel) -> None:
    assert model.sample(2, codes=3, within=60.0).codes.shape == (2, 3)
    full = model.sample(2)
    with pytest.warns(DeadlineWarning):
        hurried = model.sample(2, codes=3, within=1e-7)
    assert hurried.codes.shape == (2, 1)
    assert torch.equal(hurried.codes, full.codes[:, :1])
    assert hurried.data.shape == full.data.shape
