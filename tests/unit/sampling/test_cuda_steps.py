"""The cuda engine's steps on a CPU, with graphs that only count."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

from anytime.model import AnytimeModel
from anytime.sampling.engines.base import Request
from anytime.sampling.engines.cuda import CudaEngine
from anytime.sampling.engines.cuda_step import SMALL_BATCH, cast_prior
from anytime.sampling.gumbel import SamplingSettings


@pytest.fixture
def engine(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> tuple[CudaEngine, list[int]]:
    """An engine without a GPU, and the steps of every graph that it replays."""
    made, replayed = CudaEngine.__new__(CudaEngine), list[int]()
    made.prior, made.device, made._lock, made._arenas = tiny.prior, torch.device("cpu"), threading.RLock(), {}  # type: ignore[assignment]
    made.step_once = SimpleNamespace(prior=cast_prior(tiny.prior, torch.float32))  # type: ignore[assignment, arg-type]

    def captured(arena: object, filters: bool, steps: int) -> SimpleNamespace:
        return SimpleNamespace(replay=lambda: replayed.append(steps))

    monkeypatch.setattr(made, "_graph", captured)
    return made, replayed


@pytest.mark.parametrize(
    ("rows", "times", "graphs"),
    [
        (1, 8, [1, 1, 1, 1, 2, 2]),
        (1, 7, [1, 1, 1, 1, 2, 1]),
        (1, 1, [1]),
        (SMALL_BATCH, 5, [1] * 5),
        (SMALL_BATCH + 1, 8, [1] * 8),
        (3, 0, []),
    ],
)
def test_graphs_add_up_to_the_steps_requested(
    engine: tuple[CudaEngine, list[int]], rows: int, times: int, graphs: list[int]
) -> None:
    made, replayed = engine
    work = made.start(Request(torch.empty(rows, 0, dtype=torch.long), torch.arange(rows), 0, SamplingSettings(), "model"))
    made.step(work, times)
    assert replayed == graphs
    assert work.steps_done == times


def test_every_request_starts_with_a_short_graph(engine: tuple[CudaEngine, list[int]]) -> None:
    made, replayed = engine
    work = made.start(Request(torch.empty(1, 0, dtype=torch.long), torch.arange(1), 0, SamplingSettings(), "model"))
    made.step(work, 6)
    made.step(work, 2)
    assert replayed == [1, 1, 1, 1, 2, 1, 1]
    assert work.steps_done == 8
