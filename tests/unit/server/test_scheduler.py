"""The scheduler with a fake clock: a simulated engine whose steps and decodes take given times."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anytime.server.costs import CostModel, Curve
from anytime.server.scheduler import MARGIN, Action, Job, Scheduler

LENGTH, ROWS = 16, 8
STEP = {rows: 0.0003 + 0.00005 * rows for rows in (1, 8, 64, 256)}
DECODE = {rows: 0.0004 * rows for rows in (1, 8, 16, 64)}
FULL = LENGTH * (0.0003 + 0.00005 * 64) / 8 + 0.0004 * ROWS
"""Seconds of the machine for a request with all codes, in full batches."""
ONE_CODE = 0.0003 + 0.00005 * ROWS + 0.0004 * ROWS


def scheduler(capacity: int, **options: Any) -> Scheduler:
    """A scheduler whose planning takes no time."""
    return Scheduler(capacity, timer=lambda: 0.0, **options)


@dataclass
class Machine:
    """An engine that takes as long as its cost model says, times `slower`, and what it did."""

    scheduler: Scheduler
    now: float = 0.0
    slower: Callable[[], float] = lambda: 1.0
    done: list[Job] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)
    refused: list[Job] = field(default_factory=list)
    expired: list[Job] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    decode: dict[int, float] = field(default_factory=lambda: DECODE)

    def __post_init__(self) -> None:
        self.costs = CostModel(Curve(STEP), Curve(self.decode), clock=lambda: self.now)

    def job(self, number: int, within: float, *, size: int = ROWS, target: int = LENGTH, **more: int) -> Job:
        return Job(number, self.costs, size, target, self.now + within, self.now, **more)

    def submit(self, job: Job) -> bool:
        if self.scheduler.refusal(job, self.now) is not None:
            self.refused.append(job)
            return False
        self.scheduler.add(job)
        return True

    def turn(self) -> bool:
        """Do one piece of work; return whether there was one."""
        action = self.scheduler.next(self.now)
        self.actions.append(action)
        if action.kind == "wait":
            return False
        if action.kind == "expire":
            for job in action.jobs:
                self.expired.append(job)
                self.scheduler.remove(job)
        elif action.kind == "step":
            rows = sum(job.size for job in action.jobs)
            assert rows <= self.scheduler.capacity
            self._pass(self.costs._step(rows), self.costs.add_step, rows)
            for job in action.jobs:
                job.has_slots = True
                job.lead -= 1
                if job.lead <= 0:
                    job.count, job.lead = job.count + 1, 1
        else:
            job = action.jobs[0]
            if action.kind == "refine":
                job.shown = job.count
                self.now += self.costs.decode(job.size)
            else:
                chunk = min(self.costs.chunk, sum(each.size - each.decoded for each in action.jobs))
                self._pass(self.costs._decode(chunk), self.costs.add_decode, chunk)
                for each in action.jobs:
                    each.decoded += chunk if each is job and len(action.jobs) == 1 else each.size
                    if each.decoded == each.size:
                        self.scheduler.remove(each)
                        self.done.append(each)
                        self.ended[each.number] = self.now
        return True

    def _pass(self, seconds: float, add: Callable[[int, float], None], rows: int) -> None:
        took = seconds * self.slower()
        self.now += took
        add(rows, took)

    def serve(self, arrivals: list[float], within: float | Callable[[], float]) -> None:
        """Serve jobs that arrive at these times until all are done."""
        for number, at in enumerate(arrivals):
            while self.now < at and self.turn():
                pass
            self.now = max(self.now, at)
            job = self.job(number, within() if callable(within) else within)
            job.arrived, job.deadline = at, at + job.deadline - self.now
            self.submit(job)
        while self.turn():
            pass

    @property
    def late(self) -> list[Job]:
        return [job for job in self.done if self.ended[job.number] > job.deadline]

    @property
    def codes(self) -> float:
        return sum(job.count for job in self.done) / len(self.done)


def arrivals(load: float, seconds: float, seed: int = 0) -> list[float]:
    rng, at, found = random.Random(seed), 0.0, list[float]()
    while (at := at + rng.expovariate(load / FULL)) < seconds:
        found.append(at)
    return found


def test_alone_a_job_gets_all_its_codes() -> None:
    machine = Machine(scheduler(256))
    machine.serve([0.0], 10.0)
    assert machine.done[0].count == LENGTH
    assert [action.kind for action in machine.actions] == ["step"] * LENGTH + ["decode", "wait"]


def test_jobs_are_decoded_together_where_that_is_cheaper() -> None:
    """On a GPU 32 rows take as long as 8. On a CPU they take four times as long, and the first answer would only wait."""
    together = {"flat": [4], "linear": [1, 1, 1, 1]}
    for name, decode in (("flat", {1: 0.001, 64: 0.0011}), ("linear", DECODE)):
        machine = Machine(scheduler(256), decode=decode)
        machine.serve([0.0] * 4, 10.0)
        assert [job.count for job in machine.done] == [LENGTH] * 4
        assert [len(action.jobs) for action in machine.actions if action.kind == "decode"] == together[name]


def test_only_finished_jobs_with_as_many_codes_are_decoded_together() -> None:
    machine = Machine(scheduler(256), decode={1: 0.001, 64: 0.0011})
    for number, target in enumerate((4, 4, 6)):
        machine.submit(machine.job(number, 10.0, target=target))
    while machine.turn():
        pass
    decoded = [[job.number for job in action.jobs] for action in machine.actions if action.kind == "decode"]
    assert decoded == [[0, 1], [2]]


def test_a_deadline_cuts_the_codes() -> None:
    counts = []
    for within in (0.006, 0.010, 0.014, 0.1):
        machine = Machine(scheduler(256))
        machine.serve([0.0], within)
        assert not machine.late
        counts.append(machine.done[0].count)
    assert counts == sorted(set(counts)) and counts[-1] == LENGTH


@pytest.mark.parametrize("within", [0.1, 0.5, 2.0])
def test_under_load_sequences_shorten_and_deadlines_hold(within: float) -> None:
    codes = []
    for load in (0.4, 1.0, 1.5, 2.0):
        machine = Machine(scheduler(256))
        machine.serve(arrivals(load, 3.0), within)
        assert not machine.late
        assert len(machine.refused) <= 0.01 * (len(machine.refused) + len(machine.done))
        codes.append(machine.codes)
    assert codes == sorted(codes, reverse=True)
    assert codes[0] == LENGTH and codes[-1] < 0.7 * LENGTH


def test_without_adaptation_the_same_load_loses_most_deadlines() -> None:
    machine = Machine(scheduler(256, adaptive=False))
    machine.serve(arrivals(2.0, 3.0), 0.25)
    total = len(machine.done) + len(machine.expired)
    assert (len(machine.done) - len(machine.late)) / total < 0.5
    assert all(job.count == LENGTH for job in machine.done), "always all codes"
    assert not machine.refused


def test_far_beyond_capacity_some_are_refused_and_nobody_is_late() -> None:
    machine = Machine(scheduler(256))
    machine.serve(arrivals(8.0, 2.0), 0.1)
    assert not machine.late
    assert 0.3 < len(machine.refused) / (len(machine.refused) + len(machine.done)) < 0.9
    assert len(machine.done) * ONE_CODE > 0.8 * 2.0, "the machine is used"


def test_a_slow_machine_and_stalls_are_followed() -> None:
    rng = random.Random(1)
    machine = Machine(scheduler(256), slower=lambda: 2.0 if rng.random() < 0.9 else 4.0)
    machine.serve(arrivals(0.8, 3.0), 0.2)
    assert len(machine.late) <= 0.01 * len(machine.done)


def test_a_refusal_says_when_it_could_be_served() -> None:
    machine = Machine(scheduler(256))
    for number in range(20):
        machine.submit(machine.job(number, 0.2))
    job = machine.job(99, 0.003)
    after = machine.scheduler.refusal(job, machine.now)
    assert after is not None and after > 0.003
    assert machine.scheduler.refusal(machine.job(99, after + 1e-6), machine.now) is None
    assert machine.scheduler.refusal(machine.job(100, after - 0.002), machine.now) is not None


def test_a_job_that_would_make_others_late_is_refused() -> None:
    machine = Machine(scheduler(256))
    fits = 0
    while machine.submit(machine.job(fits, 0.1)):
        fits += 1
    assert fits > 10
    assert not machine.submit(machine.job(1000, 0.05)), "it is more urgent than all others, which have no time to give"
    while machine.turn():
        pass
    assert not machine.late and len(machine.done) == fits


def test_the_urgent_go_first() -> None:
    machine = Machine(scheduler(256))
    machine.submit(machine.job(0, 2.0))
    for number in range(1, 5):
        machine.submit(machine.job(number, 0.05))
    while machine.turn():
        pass
    assert [job.number for job in machine.done] == [1, 2, 3, 4, 0] and not machine.late
    assert machine.done[-1].count == LENGTH


def test_nobody_starves() -> None:
    """A job without a hurry is served beside an endless stream of urgent ones."""
    machine = Machine(scheduler(256))
    busy = arrivals(2.0, 4.0)
    for number, at in enumerate(busy):
        while machine.now < at and machine.turn():
            pass
        machine.now = max(machine.now, at)
        if number == len(busy) // 4:
            patient = machine.job(10_000, 1.0)
            assert machine.submit(patient)
        machine.submit(machine.job(number, 0.05))
    assert patient in machine.done and machine.ended[10_000] <= patient.deadline and patient.count >= 1


def test_everybody_gets_about_as_many_codes() -> None:
    machine = Machine(scheduler(256))
    for number in range(12):
        assert machine.submit(machine.job(number, 0.08))
    while machine.turn():
        pass
    counts = [job.count for job in machine.done]
    assert max(counts) <= 2 * min(counts) < LENGTH and not machine.late


def test_rows_without_free_slots_wait() -> None:
    machine = Machine(scheduler(16))
    for number in range(6):
        machine.submit(machine.job(number, 5.0))
    while machine.turn():
        used = sum(job.size for job in machine.scheduler.jobs if job.has_slots)
        assert used <= 16
    assert len(machine.done) == 6 and all(job.count == LENGTH for job in machine.done)


def test_refinements_are_shown_while_there_is_time() -> None:
    machine = Machine(scheduler(256))
    job = machine.job(0, 5.0)
    job.every = 4
    machine.submit(job)
    while machine.turn():
        pass
    assert [action.kind for action in machine.actions].count("refine") == 3, "at 4, 8 and 12 codes; the last is the answer"
    hurried = Machine(scheduler(256))
    job = hurried.job(0, 0.012)
    job.every = 1
    hurried.submit(job)
    while hurried.turn():
        pass
    assert not hurried.late
    assert [action.kind for action in hurried.actions].count("refine") < 3


def test_a_prefix_is_an_answer_if_there_is_no_time_for_more() -> None:
    machine = Machine(scheduler(256))
    short = machine.job(0, MARGIN + 0.0004 * ROWS + 1e-4, count=5, lead=6)
    machine.submit(short)
    longer = machine.job(1, 1.0, count=5, lead=6)
    machine.submit(longer)
    while machine.turn():
        pass
    assert short.count == 5 and longer.count == LENGTH


def test_large_requests_are_decoded_in_chunks_between_which_others_are_served() -> None:
    machine = Machine(scheduler(256))
    machine.submit(machine.job(0, 10.0, size=64, target=1))
    while machine.scheduler.jobs[0].decoded == 0:
        machine.turn()
    assert machine.submit(machine.job(1, 0.015, target=2))
    while machine.turn():
        pass
    assert [job.number for job in machine.done] == [1, 0] and not machine.late


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.floats(0.003, 0.5), st.integers(1, 40), st.integers(1, LENGTH)), max_size=30),
    st.integers(40, 256),
)
def test_whatever_is_accepted_is_answered_in_time(requests: list[tuple[float, float, int, int]], capacity: int) -> None:
    machine = Machine(scheduler(capacity))
    for number, (at, within, size, target) in enumerate(sorted(requests)):
        while machine.now < at and machine.turn():
            pass
        machine.now = max(machine.now, at)
        machine.submit(machine.job(number, within, size=size, target=target))
    while machine.turn():
        pass
    assert len(machine.done) + len(machine.refused) == len(requests)
    assert not machine.late
    assert all(1 <= job.count <= job.target for job in machine.done)
