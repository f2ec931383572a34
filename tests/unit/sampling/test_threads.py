from __future__ import annotations

import pytest
import torch

from anytime.model import AnytimeModel
from anytime.sampling.threads import QUIET_STEPS, SLOW_STEPS, ThreadChoice, use_threads


def measured(one: float, several: float) -> ThreadChoice:
    """A choice between one thread and two, whose steps take these seconds."""
    choice = ThreadChoice(2)
    choice.measure(lambda: one if torch.get_num_threads() == 1 else several)
    return choice


@pytest.mark.parametrize(("several", "count"), [(0.5, 2), (0.79, 2), (0.9, 1), (3.0, 1)])
def test_several_threads_must_be_clearly_faster(several: float, count: int) -> None:
    assert measured(1.0, several).count == count


def test_disturbed_threads_are_left_and_taken_again_when_the_load_ends() -> None:
    choice = measured(1.0, 0.5)
    assert not any(choice.add_step(seconds) for seconds in (0.5, 5.0, 0.5, 0.5, 0.5)), "one stall changes nothing"
    changes = [choice.add_step(2.0) for _ in range(SLOW_STEPS)]
    assert any(changes) and choice.count == 1
    assert not any(choice.add_step(2.5) for _ in range(QUIET_STEPS)), "one thread is disturbed too"
    assert [choice.add_step(1.1) for _ in range(QUIET_STEPS)].index(True) == QUIET_STEPS - 1
    assert choice.count == 2


def test_one_thread_stays_where_it_is_fastest() -> None:
    choice = measured(1.0, 2.0)
    assert not any(choice.add_step(seconds) for seconds in [1.0, 9.0] * 100)
    assert str(choice) == "1 of 2 threads"


def test_threads_are_restored() -> None:
    before = torch.get_num_threads()
    with use_threads(1):
        assert torch.get_num_threads() == 1
    with use_threads(None):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before


def test_only_a_deadline_changes_the_threads(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests without a deadline must not depend on the load of the machine."""
    with use_threads(2):
        used = []
        step = tiny.engine.step
        monkeypatch.setattr(tiny.engine, "step", lambda *args: (used.append(torch.get_num_threads()), step(*args))[1])
        tiny.sample(3)
        tiny.sample(3, progress=lambda codes, seconds: None)
        assert set(used) == {2}
        tiny.sample(3, within=100.0)  # measures both
        used.clear()
        tiny.sample(3, within=100.0)
        assert set(used) == {tiny.sampler.latencies[3].threads.count}  # type: ignore[union-attr]
        assert torch.get_num_threads() == 2
