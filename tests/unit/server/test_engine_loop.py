"""The engine's loop in this process, with a tiny model and the other end of its connection in our hands."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from anytime.model import AnytimeModel
from anytime.sampling.slots import EagerSlots, build_slots
from anytime.server.engine import cost_model, describe
from anytime.server.engine_loop import EngineLoop, ServedModel
from anytime.server.messages import Answer, Cancel, Curves, Drain, Failed, Refused, Stats, Submit

JOIN = {1: 0.0003}
CURVES = Curves({1: 0.0005, 64: 0.002}, {1: 0.0005, 8: 0.002}, 1, JOIN, samples_at_join=True)


class Engine:
    """A loop and our end of its connection."""

    def __init__(self, model: AnytimeModel, slots: int = 32, curves: Curves = CURVES, **options: Any) -> None:
        self.ours, theirs = multiprocessing.Pipe()
        costs = cost_model(curves)
        self.table = build_slots(model.engine, slots)
        served = ServedModel(model, describe("tiny", model, costs, slots), self.table, costs, curves)
        self.loop, self.connection = EngineLoop(theirs, [served], **options), theirs

    def close(self) -> None:
        for end in (self.loop.channel, self.ours, self.connection):
            end.close()

    def submit(self, number: int, n: int = 2, **more: Any) -> None:
        now = time.monotonic()
        given = {"seed": 7, "prefix": ((),) * n, "codes": 8, "deadline": now + 60, "arrived": now, **more}
        self.ours.send(Submit(number=number, model="tiny", rows=tuple(range(n)), **given))

    def replies(self, turns: int = 400) -> list[Any]:
        """Turn until there is nothing to do; return all replies but the signs of life."""
        found = []
        for _ in range(turns):
            self.loop._take_arrived()
            if not self.loop.jobs:
                break
            self.loop.turn()
        while self.ours.poll():
            reply = self.ours.recv()
            found += [] if isinstance(reply, Stats) else [reply]
        return found


@pytest.fixture
def engine(tiny: AnytimeModel) -> Iterator[Engine]:
    made = Engine(tiny)
    yield made
    made.close()


def codes(model: AnytimeModel, n: int = 2, **settings: Any) -> list[list[int]]:
    found: list[list[int]] = model.sample(n, seed=7, **settings).codes.tolist()
    return found


def test_requests_served_together_get_the_codes_of_the_model(engine: Engine, tiny: AnytimeModel) -> None:
    engine.submit(1, 3)
    engine.submit(2, 2, codes=5, temperature=0.5)
    engine.submit(3, 4, prefix=((3, 1),) * 4, top_p=0.8)
    replies = {reply.number: reply for reply in engine.replies()}
    assert all(isinstance(reply, Answer) and reply.final for reply in replies.values())
    assert replies[1].codes.tolist() == codes(tiny, 3)
    assert replies[2].codes.tolist() == codes(tiny, 2, codes=5, temperature=0.5)
    assert replies[3].codes.tolist() == codes(tiny, 4, prefix=torch.tensor([[3, 1]]), top_p=0.8)
    expected = tiny.sample(3, seed=7).data.numpy()
    assert abs(replies[1].data - expected).max() < 1e-4
    assert engine.table.free == 32


def test_refinements_precede_the_answer(engine: Engine, tiny: AnytimeModel) -> None:
    engine.submit(1, 2, every=3)
    replies = engine.replies()
    assert [(reply.codes.shape[1], reply.final) for reply in replies] == [(3, False), (6, False), (8, True)]
    assert all(reply.codes.tolist() == [row[: reply.codes.shape[1]] for row in codes(tiny)] for reply in replies)


def test_a_cancelled_request_frees_its_slots_and_says_nothing(engine: Engine) -> None:
    engine.submit(1)
    engine.submit(2)
    for _ in range(3):
        engine.loop.turn()
    engine.ours.send(Cancel(1))
    assert [reply.number for reply in engine.replies()] == [2]
    assert engine.table.free == 32


def test_cancellations_make_room_for_requests_that_arrive_with_them(tiny: AnytimeModel) -> None:
    """One code takes a second, so that the new request can only be served without the others."""
    engine = Engine(tiny, curves=Curves({1: 1.0, 32: 1.0}, {1: 0.1, 32: 0.1}, 1, JOIN))
    for number in range(1, 6):
        engine.submit(number)
    engine.loop._take_arrived()
    engine.submit(6, codes=1, deadline=time.monotonic() + 2.5)
    for number in (1, 2, 3, 4, 5, 7):
        engine.ours.send(Cancel(number))
    engine.submit(7)  # cancelled before it was taken
    (reply,) = engine.replies()
    assert isinstance(reply, Answer) and reply.number == 6
    engine.close()


def test_a_deadline_that_cannot_be_kept_is_refused_at_once(engine: Engine) -> None:
    engine.submit(1, deadline=time.monotonic() + 0.001)
    (reply,) = engine.replies()
    assert isinstance(reply, Refused) and reply.possible_after > 0.001


def test_a_request_that_fails_does_not_touch_the_others(
    engine: Engine, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A step that raises while the rows of one request are in it; then a sample that is not finite."""
    step, decode = EagerSlots.step, EagerSlots.decode

    def faulty_step(table: EagerSlots, groups: Any) -> None:
        if any(group.request.seed == 666 for group in groups):
            raise RuntimeError("a fault in this request")
        step(table, groups)

    monkeypatch.setattr(EagerSlots, "step", faulty_step)
    engine.submit(1)
    engine.submit(2, seed=666)
    engine.submit(3, 1)
    replies = {reply.number: reply for reply in engine.replies()}
    assert isinstance(replies[2], Failed)
    assert replies[1].codes.tolist() == codes(tiny) and replies[3].codes.tolist() == codes(tiny, 1)
    monkeypatch.setattr(EagerSlots, "decode", lambda table, rows: decode(table, rows) * (torch.nan if len(rows) == 5 else 1))
    engine.submit(4, 5)
    engine.submit(5)
    replies = {reply.number: reply for reply in engine.replies()}
    assert isinstance(replies[4], Failed) and "finite" in replies[4].reason
    assert isinstance(replies[5], Answer)
    assert engine.table.free == 32
    assert "request 2 failed" in capfd.readouterr().err


def test_jobs_that_are_decoded_together_get_their_own_samples_and_fail_by_themselves(
    tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine, decode, rows_decoded = (
        Engine(tiny, curves=Curves({1: 0.0005, 64: 0.002}, {1: 0.001, 64: 0.001}, 1, JOIN)),
        EagerSlots.decode,
        [],
    )

    def watched(table: EagerSlots, rows: torch.Tensor) -> torch.Tensor:
        rows_decoded.append(len(rows))
        data = decode(table, rows)
        if len(rows) == 9:
            data[3:5] = torch.nan  # those of the second request
        return data

    monkeypatch.setattr(EagerSlots, "decode", watched)
    for number, n in ((1, 3), (2, 2), (3, 4)):
        engine.submit(number, n)
    replies = {reply.number: reply for reply in engine.replies()}
    engine.close()
    assert rows_decoded == [9]
    assert isinstance(replies[2], Failed) and "finite" in replies[2].reason
    for number, n in ((1, 3), (3, 4)):
        expected = tiny.sample(n, seed=7)
        assert replies[number].codes.tolist() == expected.codes.tolist()
        assert abs(replies[number].data - expected.data.numpy()).max() < 1e-4
    assert engine.table.free == 32
    assert "request 2 failed" in capfd.readouterr().err


def test_a_fault_while_decoding_together_costs_only_the_request_at_fault(
    tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine, decode = Engine(tiny, curves=Curves({1: 0.0005, 64: 0.002}, {1: 0.001, 64: 0.001}, 1, JOIN)), EagerSlots.decode

    def faulty(table: EagerSlots, rows: torch.Tensor) -> torch.Tensor:
        if len(rows) in (2, 5):
            raise RuntimeError("a fault")
        return decode(table, rows)

    monkeypatch.setattr(EagerSlots, "decode", faulty)
    engine.submit(1, 3)
    engine.submit(2, 2)
    replies = {reply.number: reply for reply in engine.replies()}
    engine.close()
    assert isinstance(replies[1], Answer) and isinstance(replies[2], Failed)
    assert "request 2 failed" in capfd.readouterr().err


def test_the_web_processes_part_of_a_deadline_is_left_to_it(engine: Engine) -> None:
    engine.submit(1, deadline=time.monotonic() + 60.0, allowance=59.999)
    (reply,) = engine.replies()
    assert isinstance(reply, Refused)


def test_a_fault_of_the_engine_itself_is_not_swallowed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(table: EagerSlots, groups: Any) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(EagerSlots, "step", broken)
    engine.submit(1)
    engine.submit(2)
    with pytest.raises(RuntimeError, match="the device is lost"):
        engine.replies()


def test_a_shortened_answer_is_refined_when_idle_and_continued(engine: Engine, tiny: AnytimeModel) -> None:
    engine.submit(1)
    for _ in range(2):
        engine.loop.turn()
    job = engine.loop.jobs[1]
    job.deadline = time.monotonic()  # no time left
    (short,) = engine.replies()
    count = short.codes.shape[1]
    assert 1 <= count < 8 and engine.table.free == 30, "its rows stay in their slots"
    for _ in range(8):
        engine.loop._refine_parked()
    assert engine.loop.parked[1].group.count == 8, "idle time went into its codes"  # type: ignore[union-attr]
    engine.submit(2, prefix=tuple(tuple(row) for row in short.codes.tolist()), continues=1)
    (answer,) = engine.replies()
    assert answer.codes.tolist() == codes(tiny)
    assert engine.table.free == 32


def test_parked_answers_give_way_to_new_requests(tiny: AnytimeModel) -> None:
    engine = Engine(tiny, slots=4)
    engine.submit(1, 3)
    for _ in range(2):
        engine.loop.turn()
    engine.loop.jobs[1].deadline = time.monotonic()
    engine.replies()
    assert engine.table.free == 1
    engine.submit(2, 4)
    (answer,) = engine.replies()
    assert answer.codes.tolist() == codes(tiny, 4)
    assert engine.table.free == 4 and not engine.loop.parked
    engine.close()


def test_other_settings_do_not_continue_a_parked_answer(engine: Engine, tiny: AnytimeModel) -> None:
    engine.submit(1)
    for _ in range(2):
        engine.loop.turn()
    engine.loop.jobs[1].deadline = time.monotonic()
    (short,) = engine.replies()
    prefix = tuple(tuple(row) for row in short.codes.tolist())
    engine.submit(2, prefix=prefix, seed=8, continues=1)
    (answer,) = engine.replies()
    assert answer.codes.tolist() == tiny.sample(2, seed=8, prefix=torch.tensor(prefix)).codes.tolist()


def test_draining_brings_deadlines_forward(engine: Engine) -> None:
    engine.submit(1, deadline=time.monotonic() + 600)
    engine.loop.turn()
    engine.ours.send(Drain(time.monotonic()))
    (answer,) = engine.replies()
    assert answer.final and answer.codes.shape[1] < 8


def test_the_end_of_the_connection_ends_the_loop(tiny: AnytimeModel) -> None:
    engine = Engine(tiny)
    engine.ours.close()
    with pytest.raises((EOFError, BrokenPipeError, ConnectionResetError)):
        engine.loop.run()
    engine.close()


def test_it_is_ready_when_it_says_so(engine: Engine) -> None:
    ready = engine.loop._ready()
    (info,) = ready.models
    assert (info.name, info.length, info.codebook_size, info.shape) == ("tiny", 8, 16, (1, 28, 28))
    assert "ms a step" in ready.choice
    assert isinstance(engine.connection, Connection)
