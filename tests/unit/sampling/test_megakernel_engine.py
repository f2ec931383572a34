"""The megakernel engine without a GPU: launches run in the emulator, and graphs are replaced by steps of the prior itself."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from anytime.core import random
from anytime.model import AnytimeModel
from anytime.priors.transformer import KVCache, Transformer
from anytime.sampling.budget import Budget
from anytime.sampling.engines.cuda import Arena
from anytime.sampling.engines.cuda_megakernel import MegakernelEngine
from anytime.sampling.engines.cuda_step import StepBuffers, cast_prior
from anytime.sampling.engines.eager import decode_in_blocks
from anytime.sampling.gumbel import filter_rows, gumbel
from anytime.sampling.kernels.megakernel import Launcher, fit
from anytime.sampling.kernels.nvrtc import KernelError

from .emulator import NO_BLOCK, REASON, Emulator

pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)
PATIENCE = 1 << 14
SEED_OF = {random.key(seed): seed for seed in range(10)}


def step_of_prior(prior: Transformer, buffers: StepBuffers, filters: bool) -> None:
    """What a graph of one step does to buffers whose rows are all at one position."""
    position = int(buffers.position[0])
    state = KVCache(buffers.keys, buffers.values, buffers.position.long(), position)
    logits, _ = prior.step(buffers.codes[:, position - 1].long() if position else None, state)
    logits = logits / buffers.temperature
    if filters:
        logits = filter_rows(logits, buffers.top_k, buffers.top_p)
    for row, (first, second, number, given, is_active) in enumerate(buffers.request.tolist()):
        if is_active and position >= given:
            noise = gumbel(SEED_OF[first, second], torch.tensor([number]), position, prior.codebook_size)
            buffers.codes[row, position] = (logits[row] + noise[0]).argmax()
    buffers.position.add_(buffers.request[:, 4])


class EmulatedEngine(MegakernelEngine):
    """The engine on a CPU. `problem` is a reason why the kernel cannot be built."""

    def __init__(self, model: AnytimeModel, folder: Path, problem: str = "") -> None:
        assert isinstance(model.prior, Transformer)
        self.prior, self.device, self.precision = model.prior, torch.device("cpu"), "fp32"
        self.step_once = SimpleNamespace(prior=cast_prior(model.prior, torch.float32))  # type: ignore[assignment]
        self._decoder = SimpleNamespace(is_warm=lambda rows: True, release=lambda: None)  # type: ignore[assignment]
        self._autoencoder, self._folder, self._problem = model.autoencoder, folder, problem
        self._arenas, self._launches, self.unusable, self._lock = {}, {}, {}, threading.RLock()
        self.block = self.microbatch = 64
        self.emulators: dict[int, Emulator] = {}
        self.graph_steps = 0

    @property
    def launches(self) -> list[int]:
        """Steps of all launches, after the one that tries the kernel out."""
        return [steps for emulator in self.emulators.values() for steps in emulator.launches[1:]]

    def _build(self, rows: int) -> Launcher:
        if self._problem:
            raise KernelError(self._problem)
        shape = fit(self.prior.config, rows, torch.float32, 2 * max(2, rows))
        self.emulators[rows] = Emulator(shape, self._folder, patience=PATIENCE)
        return self.emulators[rows]

    def _graph(self, arena: Arena, filters: bool, steps: int) -> Any:
        if (filters, steps) not in arena.graphs:
            self._swap_out(arena)  # as capturing does
            arena.graphs[filters, steps] = None  # type: ignore[assignment]

        def replay() -> None:
            self.graph_steps += steps
            for _ in range(steps):
                step_of_prior(self.step_once.prior, arena.buffers, filters)

        return SimpleNamespace(replay=replay)

    def decode(self, codes: Tensor) -> Tensor:
        return decode_in_blocks(self._autoencoder, codes)

    def wait(self) -> None:
        """A CPU is never ahead."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulators")


Build = Callable[..., tuple[AnytimeModel, EmulatedEngine]]


@pytest.fixture
def build(tiny: AnytimeModel, folder: Path) -> Build:
    """Return a model that samples with a megakernel engine."""

    def with_engine(**settings: Any) -> tuple[AnytimeModel, EmulatedEngine]:
        model = copy.deepcopy(tiny)
        engine = EmulatedEngine(model, folder, **settings)
        _ = model.engine
        model.sampler._engine = engine
        return model, engine

    return with_engine


@pytest.mark.parametrize("n", [1, 3])
def test_every_way_to_sample_gives_the_eager_codes(build: Build, tiny: AnytimeModel, n: int) -> None:
    model, engine = build()
    full = tiny.sample(n, seed=3, temperature=0.8).codes
    assert torch.equal(model.sample(n, seed=3, temperature=0.8).codes, full)
    assert engine.launches == [8] and engine.graph_steps == 0, "one launch"
    assert torch.equal(model.sample(n, seed=3, temperature=0.8, codes=3).codes, full[:, :3])
    assert torch.equal(model.refine(model.sample(n, seed=3, temperature=0.8, codes=3)).codes, full)
    assert torch.equal(model.sample(n, seed=3, temperature=0.8, prefix=full[:, :5]).codes, full)
    for sample in model.stream(n, seed=3, temperature=0.8, every=3):
        assert torch.equal(sample.codes, full[:, : sample.codes.shape[1]])
    assert engine.graph_steps == 0 and not engine.unusable


def test_a_request_that_is_watched_takes_single_steps(build: Build, tiny: AnytimeModel) -> None:
    model, engine = build()
    full = tiny.sample(1, seed=3).codes
    assert torch.equal(model.sample(1, seed=3, within=100.0).codes, full)
    assert engine.launches == [1] * 8
    stop = threading.Event()
    stopped = model.sample(1, seed=3, stop=stop, progress=lambda codes, seconds: stop.set() if codes == 5 else None)
    assert torch.equal(stopped.codes, full[:, :5])


def test_many_rows_and_filters_take_the_graphs(build: Build, tiny: AnytimeModel) -> None:
    model, engine = build()
    for n, settings in ((9, {}), (2, {"top_k": 3})):
        assert torch.equal(model.sample(n, seed=1, **settings).codes, tiny.sample(n, seed=1, **settings).codes)
    assert engine.launches == [] and engine.graph_steps == 16


def test_sessions_take_turns_on_the_same_buffers(build: Build, tiny: AnytimeModel) -> None:
    """Two on the kernel and one on the graphs, which have the same bucket."""
    model, engine = build()
    settings: list[dict[str, Any]] = [{"seed": 1}, {"seed": 2, "temperature": 0.5}, {"seed": 3, "top_k": 2}]
    sessions = [model.session(2, **kwargs) for kwargs in settings]
    expected = [tiny.sample(2, **kwargs).codes for kwargs in settings]
    for count in (2, 3, 6, 8):
        for session, full in zip(sessions, expected, strict=True):
            assert torch.equal(session.run(Budget(codes=count)).codes, full[:, :count])
        if count == 3:
            engine.release()
            assert torch.equal(sessions[0].codes, expected[0][:, :3])
    assert engine.launches and engine.graph_steps >= 8 and not engine.unusable


def test_a_launch_that_waits_too_long_is_computed_again(
    build: Build, tiny: AnytimeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model, engine = build()
    full = tiny.sample(2, seed=5).codes
    session = model.session(2, seed=5)
    assert torch.equal(session.run(Budget(codes=3)).codes, full[:, :3])
    engine.emulators[2].silent_block = 1
    with caplog.at_level(logging.INFO, "anytime"):
        assert torch.equal(session.run(Budget(codes=6)).codes, full[:, :6])
        assert torch.equal(session.run(Budget(codes=8)).codes, full)
        assert torch.equal(model.sample(2, seed=5).codes, full)
    (record,) = caplog.records
    assert record.getMessage() == (
        "batches of up to 2 rows use the cuda engine's path, as the megakernel cannot be used: "
        "a launch has waited too long for its own messages"
    )
    assert engine.launches == [3, 3], "no launch after it"
    assert engine.graph_steps == 6 + 2 + 8
    engine.emulators[2].silent_block = NO_BLOCK
    assert torch.equal(model.sample(1, seed=5).codes, tiny.sample(1, seed=5).codes)
    assert len(engine.emulators[1].launches) == 2, "other batch sizes keep their kernel"


@pytest.mark.parametrize("event", ["another session", "release", "a copy"])
def test_a_failure_is_noticed_before_the_state_is_used(build: Build, tiny: AnytimeModel, event: str) -> None:
    """Codes that nobody has read yet are checked when their buffers are given to another batch."""
    model, engine = build()
    first = model.session(2, seed=5)
    block = first._blocks[0]
    engine.step(block, 2)
    assert block.count == 2
    engine.emulators[2].silent_block = 0
    engine.step(block, 3)
    if event == "another session":
        assert torch.equal(model.sample(2, seed=6).codes, tiny.sample(2, seed=6).codes)
    elif event == "release":
        engine.release()
    else:
        assert torch.equal(copy.deepcopy(first).run(Budget(codes=8)).codes, tiny.sample(2, seed=5).codes)
    assert block.count == 5 and torch.equal(first.codes, tiny.sample(2, seed=5).codes[:, :5])
    assert torch.equal(first.run(Budget(codes=8)).codes, tiny.sample(2, seed=5).codes)


def test_a_launch_that_the_driver_refuses_is_replaced_at_once(
    build: Build, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, engine = build()
    full = tiny.sample(1, seed=5).codes
    session = model.session(1, seed=5)
    assert torch.equal(session.run(Budget(codes=3)).codes, full[:, :3])

    def refuse(arguments: object) -> None:
        raise KernelError("cuLaunchCooperativeKernel reports too many blocks in cooperative launch")

    monkeypatch.setattr(engine.emulators[1], "launch", refuse)
    assert torch.equal(session.run(Budget(codes=8)).codes, full)
    assert engine.graph_steps == 5, "from where it was"
    assert engine.unusable == {1: "cuLaunchCooperativeKernel reports too many blocks in cooperative launch"}


def test_without_the_kernel_it_is_the_cuda_engine(build: Build, tiny: AnytimeModel, caplog: pytest.LogCaptureFixture) -> None:
    model, engine = build(problem="NVRTC 12 or newer is not installed")
    with caplog.at_level(logging.INFO, "anytime"):
        for n in (1, 2, 1):
            assert torch.equal(model.sample(n, seed=1).codes, tiny.sample(n, seed=1).codes)
            assert torch.equal(model.sample(n, seed=1, within=100.0).codes, tiny.sample(n, seed=1).codes)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["NVRTC 12 or newer is not installed"] * 2
    assert engine.launches == []


def test_a_kernel_whose_first_launch_fails_is_not_used(
    build: Build, tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, engine = build()
    whole = EmulatedEngine._build

    def silenced(self: EmulatedEngine, rows: int) -> Launcher:
        whole(self, rows)
        self.emulators[rows].silent_block = 2
        return self.emulators[rows]

    monkeypatch.setattr(EmulatedEngine, "_build", silenced)
    assert torch.equal(model.sample(1, seed=1).codes, tiny.sample(1, seed=1).codes)
    assert engine.launches == [] and engine.unusable == {1: "its blocks do not receive each other's messages"}


def test_it_is_warm_after_a_warm_up(build: Build) -> None:
    for problem in ("", "no cooperative launch"):
        model, engine = build(problem=problem)
        request = model.session(2, seed=0).request
        assert not engine.is_warm(request)
        engine.warm_up(request)
        assert engine.is_warm(request)
        engine.release()
        assert not engine.is_warm(request)


def test_threads_may_share_a_model(build: Build, tiny: AnytimeModel) -> None:
    model, _ = build()
    expected, found = {seed: tiny.sample(1, seed=seed).codes for seed in range(3)}, {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: model.sample(1, seed=seed).codes})) for seed in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[seed], expected[seed]) for seed in range(3))
