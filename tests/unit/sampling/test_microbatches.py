"""Requests of more rows than one block, with a deadline: codes are cut first, rows last, and one sentence says so."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anytime.model import AnytimeModel
from anytime.sampling.budget import Budget, DeadlineWarning
from anytime.sampling.engines.base import ActiveBatch, Request
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.latency import LatencyEstimate
from anytime.sampling.microbatches import Microbatches
from anytime.sampling.sample import Sample
from anytime.sampling.session import Progress, Session

LENGTH, BLOCK = 30, 8


@dataclass
class FakeEngine:
    """An engine whose steps and decodes of a block take a given time on its own clock."""

    step_cost: float
    decode_cost: float
    now: float = 100.0
    cold: float = 0.0  # seconds of warm-up
    decoded_rows: int = 0
    name: str = "fake"
    precision: str = "fp32"
    block: int = BLOCK
    microbatch: int = 2 * BLOCK
    max_rows: int = 1 << 20  # that fit into memory
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def clock(self) -> float:
        return self.now

    def is_warm(self, request: Request) -> bool:
        return self.cold == 0

    def warm_up(self, request: Request) -> None:
        self.now, self.cold = self.now + self.cold, 0.0

    def start(self, request: Request) -> ActiveBatch:
        if len(request.rows) > self.max_rows:
            raise RuntimeError("out of memory")
        return ActiveBatch(request)

    def step(self, batch: ActiveBatch, times: int = 1) -> None:
        self.now += times * self.step_cost
        batch.steps_done += times

    def codes(self, batch: ActiveBatch) -> Tensor:
        return batch.request.rows[:, None].expand(-1, batch.count).clone()

    def decode(self, codes: Tensor) -> Tensor:
        self.now += self.decode_cost
        self.decoded_rows += len(codes)
        return codes[:, :1].float()

    def wait(self) -> None:
        pass

    def release(self) -> None:
        pass


def run(
    engine: FakeEngine,
    n: int,
    within: float | None,
    prefix: int = 0,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> Sample:
    latency = LatencyEstimate()
    latency.add_step(engine.step_cost)
    latency.add_decode(engine.decode_cost)
    request = Request(torch.zeros(n, prefix, dtype=torch.long), torch.arange(n), 0, SamplingSettings(), "")
    return Microbatches(
        engine=engine,
        start=lambda part: Session(engine, latency, LENGTH, part),
        request=request,
        budget=Budget(codes=LENGTH, within=within, stop=stop),
        started=engine.clock(),
        progress=progress,
        clock=engine.clock,
    ).run()


@given(step=st.integers(1, 9), decode=st.integers(0, 9), within=st.integers(1, 900), blocks=st.integers(2, 6))
def test_codes_are_cut_before_rows_and_the_deadline_is_kept(step: int, decode: int, within: int, blocks: int) -> None:
    engine = FakeEngine(float(step), float(decode))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sample = run(engine, blocks * BLOCK, float(within))
    rows, codes = sample.codes.shape
    fits = within // (step + decode)  # blocks that get one code
    assert rows == BLOCK * max(1, min(blocks, fits))
    assert sample.rows.tolist() == list(range(rows)) == sample.data.flatten().tolist()
    assert codes == 1 or blocks * (codes * step + decode) <= within, "several codes only if all rows have them"
    assert sample.seconds <= max(within, step + decode)
    assert engine.decoded_rows == rows, "nothing is decoded twice"
    assert len(said) == (rows < blocks * BLOCK)
    if said:
        assert f"`within` of {within} s is too short for `n` of {blocks * BLOCK}: {rows} rows of 1 code" in str(said[0].message)


def test_much_time_gives_all_codes_of_all_rows() -> None:
    sample = run(FakeEngine(1.0, 1.0), 3 * BLOCK + 1, 1000.0)
    assert sample.codes.shape == (3 * BLOCK + 1, LENGTH)


def test_a_last_block_that_is_smaller_is_not_left_out() -> None:
    assert len(run(FakeEngine(1.0, 1.0), 2 * BLOCK + 1, 6.0).rows) == 2 * BLOCK + 1


def test_the_warm_up_and_the_cut_are_one_sentence() -> None:
    with pytest.warns(DeadlineWarning) as said:
        sample = run(FakeEngine(1.0, 1.0, cold=50.0), 10 * BLOCK, 4.0)
    assert len(sample.rows) == 2 * BLOCK
    assert [str(one.message) for one in said] == [
        "`within` of 4 s is too short for `n` of 80: 16 rows of 1 code, 4.0000 s; "
        "the fake engine warmed up for 80 rows: 51 s before `within` began"
    ]


def test_given_codes_need_no_step() -> None:
    with pytest.warns(DeadlineWarning, match="24 rows of 5 codes"):
        assert run(FakeEngine(10.0, 1.0), 10 * BLOCK, 3.0, prefix=5).codes.shape == (3 * BLOCK, 5)


def test_a_stop_returns_the_rows_so_far_without_a_warning() -> None:
    stop = threading.Event()
    sample = run(FakeEngine(1.0, 1.0), 4 * BLOCK, 1000.0, stop=stop, progress=lambda codes, seconds: stop.set())
    assert sample.codes.shape == (BLOCK, 1)


def test_progress_counts_the_seconds_of_the_whole_request() -> None:
    seen = list[float]()
    run(FakeEngine(1.0, 1.0), 2 * BLOCK, 8.0, progress=lambda codes, seconds: seen.append(seconds))
    assert seen == sorted(seen) and len(seen) == 6


@pytest.mark.parametrize("n", [BLOCK, 2 * BLOCK])
def test_rows_that_do_not_fit_into_memory_share_the_deadline(n: int) -> None:
    with pytest.warns(UserWarning, match="8 rows do not fit into memory; continuing with 4 at a time"):
        sample = run(FakeEngine(1.0, 1.0, max_rows=4), n, 20.0)
    assert len(sample.rows) == n
    assert sample.seconds <= 20.0


def test_a_model_keeps_a_deadline_that_its_rows_do_not_fit_into(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagerEngine, "block", 8)
    tiny.use("eager")
    full = tiny.sample(100, seed=3)
    assert torch.equal(tiny.sample(100, seed=3, within=600.0).codes, full.codes)
    with pytest.warns(DeadlineWarning) as said:
        sample = tiny.sample(100, seed=3, within=1e-6)
    assert sample.rows.tolist() == list(range(8))
    assert torch.equal(sample.codes, full.codes[:8, :1])
    assert len(said) == 1 and "`within` of 1e-06 s is too short for `n` of 100: 8 rows of 1 code" in str(said[0].message)
    tiny.use("eager")


def test_a_stream_on_a_cold_engine_gets_its_whole_deadline_and_warns_once() -> None:
    def stream(engine: FakeEngine, within: float) -> list[int]:
        request = Request(torch.zeros(4, 0, dtype=torch.long), torch.arange(4), 0, SamplingSettings(), "")
        session = Session(engine, LatencyEstimate(), LENGTH, request)
        budget = Budget(codes=LENGTH, within=within)
        return [sample.codes.shape[1] for sample in session.stream(budget, 1, engine.clock(), engine.clock)]

    with pytest.warns(DeadlineWarning, match="warmed up") as said:
        assert stream(FakeEngine(1.0, 1.0, cold=500.0), 10.0) == [1, 2, 3, 4, 5]
    assert len(said) == 1
    with pytest.warns(DeadlineWarning, match="one code") as said:
        assert stream(FakeEngine(1.0, 1.0), 0.5) == [1]
    assert len(said) == 1


def test_progress_is_that_of_all_rows(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of each microbatch, which would begin again at the first code."""
    monkeypatch.setattr(type(tiny.engine), "microbatch", 4)
    seen: list[tuple[int, float]] = []
    tiny.sample(10, seed=0, codes=4, progress=lambda codes, seconds: seen.append((codes, seconds)))
    assert [codes for codes, _ in seen] == [1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4]
    seconds = [used for _, used in seen]
    assert seconds == sorted(seconds)
