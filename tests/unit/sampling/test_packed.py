"""The packed and the onnx engine against the eager one."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import anytime
from anytime.model import AnytimeModel, _tiny, load
from anytime.priors.transformer import Transformer, TransformerConfig
from anytime.sampling.engines import packed_linear
from anytime.sampling.engines.base import Engine
from anytime.sampling.engines.onnx import OnnxEngine
from anytime.sampling.engines.packed_linear import PackedLinear, has_bf16, padded_rows
from anytime.sampling.engines.packed_transformer import MANY_ROWS, PackedTransformer
from anytime.sampling.engines.registry import build_engine
from anytime.sampling.gumbel import MAX_TEMPERATURE, MIN_TEMPERATURE
from anytime.sampling.sample import Sample

TOLERANCE = 1e-5
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"temperature": 0.8, "top_k": 9, "top_p": 0.95},
    {"temperature": MIN_TEMPERATURE, "top_k": 1},
    {"temperature": MAX_TEMPERATURE, "top_p": 1e-6},
]
needs_bf16 = pytest.mark.skipif(not has_bf16(), reason="this processor does not multiply bf16")


@pytest.fixture(scope="module")
def prior() -> Transformer:
    torch.manual_seed(0)
    prior = Transformer(TransformerConfig(length=12, codebook_size=40, layers=3, width=48, hidden=100, heads=4)).eval()
    for weights in prior.parameters():  # biases and norms are initialised as 0 and 1
        torch.nn.init.normal_(weights, std=0.3)
    return prior


@pytest.fixture(scope="module")
def model() -> AnytimeModel:
    torch.manual_seed(0)
    return AnytimeModel(_tiny())


@pytest.fixture(params=["oneDNN", "plain"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With packed weights, and as on a machine whose torch cannot pack them."""
    if request.param == "plain":
        monkeypatch.setattr(packed_linear, "has_onednn", lambda: False)
    return str(request.param)


@pytest.mark.parametrize("rows", [1, 2, 9, 17, 20])
@torch.no_grad()
def test_a_step_computes_the_priors_logits(prior: Transformer, backend: str, rows: int) -> None:
    packed, codes = PackedTransformer(prior, torch.float32), torch.randint(40, (rows, 12))
    exact, state = prior(codes), packed.start(rows)
    for position in range(12):
        logits, state = packed.step(codes[:, position - 1] if position else None, state)
        torch.testing.assert_close(logits, exact[:, position], atol=10 * TOLERANCE, rtol=TOLERANCE)
    with pytest.raises(ValueError, match="all 12 codes are sampled"):
        packed.step(codes[:, -1], state)


@pytest.mark.parametrize("copies", [1, MANY_ROWS // 4])
@torch.no_grad()
def test_rows_at_their_own_positions(prior: Transformer, copies: int) -> None:
    """What the cache holds after a row's position does not matter."""
    rows, positions = 4 * copies, [3, 1, 7, 2] * copies
    packed, codes = PackedTransformer(prior, torch.float32), torch.randint(40, (rows, 12))
    state = packed.start(rows)
    _, state = packed.step(None, state)
    for position in range(1, 8):
        _, state = packed.step(codes[:, position - 1], state)
    state = replace(state, position=torch.tensor(positions), max_position=7, is_uniform=False)
    previous = codes[torch.arange(rows), torch.tensor(positions) - 1]
    logits, after = packed.step(previous, state)
    exact = prior(codes)[torch.arange(rows), positions]
    torch.testing.assert_close(logits, exact, atol=10 * TOLERANCE, rtol=TOLERANCE)
    assert after.position.tolist() == [4, 2, 8, 3] * copies and after.max_position == 8


@torch.no_grad()
def test_products_have_few_numbers_of_rows(prior: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps memory for each."""
    found, product = set[int](), PackedLinear._product

    def spy(self: PackedLinear, x: torch.Tensor, activation: str) -> torch.Tensor:
        found.add(len(x))
        return product(self, x, activation)

    packed = PackedTransformer(prior, torch.float32)
    monkeypatch.setattr(PackedLinear, "_product", spy)
    for rows in range(1, 257):
        _, state = packed.step(None, packed.start(rows))
        logits, _ = packed.step(torch.zeros(rows, dtype=torch.long), state)
        assert logits.shape == (rows, 40)
    assert found == {padded_rows(rows) for rows in range(1, 257)} and len(found) <= 60


def test_padding_rows_are_few() -> None:
    for rows in range(1, 5000):
        assert 0 <= padded_rows(rows) - rows < max(4, rows / 16)
        assert rows > 16 or padded_rows(rows) == rows
        assert padded_rows(padded_rows(rows)) == padded_rows(rows)


@pytest.mark.parametrize("rows", [3, MANY_ROWS + 1])
@torch.no_grad()
def test_what_the_cache_holds_after_the_position_does_not_matter(prior: Transformer, rows: int) -> None:
    """With many rows, attention reads all of the cache from the middle of the sequence on."""
    packed, codes = PackedTransformer(prior, torch.float32), torch.randint(40, (rows, 12))
    exact, state = prior(codes), packed.start(rows)
    state.keys.fill_(1e4)
    state.values.fill_(1e4)
    for position in range(12):
        logits, state = packed.step(codes[:, position - 1] if position else None, state)
        torch.testing.assert_close(logits, exact[:, position], atol=10 * TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bf16)])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products(backend: str, dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(rows)
    layer, x, residual = torch.nn.Linear(24, 50), torch.randn(rows, 24), torch.randn(rows, 50)
    packed, exact = PackedLinear(layer.weight, layer.bias, dtype), layer(x).detach()
    tolerance = {"atol": TOLERANCE if dtype is torch.float32 else 0.02, "rtol": 0.0}
    torch.testing.assert_close(packed(x), exact, **tolerance)
    torch.testing.assert_close(packed.relu(x).float(), exact.relu(), **tolerance)
    torch.testing.assert_close(packed.add(x, residual), exact + residual, **tolerance)
    assert packed(x).dtype is packed.add(x, residual).dtype is torch.float32
    assert packed.relu(x).dtype is dtype


@pytest.mark.parametrize("engine", ["packed", "onnx"])
@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "temperature", "filtered", "greedy", "hot"])
@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_it_samples_the_eager_codes(model: AnytimeModel, n: int, settings: dict[str, Any], engine: str) -> None:
    eager = model.use("eager").sample(n, seed=5, **settings)
    packed = model.use(engine)
    full = packed.sample(n, seed=5, **settings)
    assert torch.equal(full.codes, eager.codes)
    torch.testing.assert_close(full.data, eager.data, atol=TOLERANCE, rtol=0.0)
    coarse = packed.sample(n, seed=5, codes=3, **settings)
    assert torch.equal(packed.refine(coarse).codes, full.codes)
    assert torch.equal(packed.refine(replace(coarse, session=None)).codes, full.codes)
    assert torch.equal(packed.sample(n, seed=5, prefix=full.codes[:, :2], within=60.0, **settings).codes, full.codes)
    stop = threading.Event()
    stopped = packed.sample(n, seed=5, stop=stop, progress=lambda codes, _: stop.set() if codes == 4 else None, **settings)
    assert torch.equal(stopped.codes, full.codes[:, :4])
    assert torch.equal(packed.refine(stopped).codes, full.codes)
    for every, counts in ((1, [*range(1, 9)]), (3, [3, 6, 8])):
        streamed = list(packed.stream(n, seed=5, every=every, **settings))
        assert [sample.codes.shape[1] for sample in streamed] == counts
        assert all(torch.equal(s.codes, full.codes[:, : s.codes.shape[1]]) for s in streamed)


@pytest.mark.parametrize("engine", ["packed", "onnx"])
def test_a_model_that_has_sampled_can_be_copied_and_pickled(saved: Path, engine: str) -> None:
    model = load(saved, "cpu", engine)
    sample = model.sample(3)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.engine.name == engine and copied.engine is not model.engine
        assert torch.equal(copied.sample(3).codes, sample.codes)


@pytest.mark.timing
@pytest.mark.filterwarnings("ignore::anytime.DeadlineWarning")
def test_building_the_engine_does_not_count_towards_a_deadline(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*arguments: Any) -> Engine:
        time.sleep(0.5)
        return build_engine(*arguments)

    coarse = replace(load(saved, "cpu").sample(2, codes=1), session=None)
    monkeypatch.setattr("anytime.sampling.sampler.build_engine", slow)
    requests: list[Callable[[AnytimeModel], Sample]] = [
        lambda model: model.sample(2, within=0.45),
        lambda model: next(iter(model.stream(2, every=8, within=0.45))),
        lambda model: model.refine(coarse, within=0.45),
    ]
    for request in requests:
        sample = request(load(saved, "cpu"))
        assert sample.seconds < 0.45
        assert sample.codes.shape[1] > 1
    with pytest.warns(anytime.DeadlineWarning, match="the packed engine was built for the first request: 0.5"):
        load(saved, "cpu").sample(2, within=0.45)


def test_an_onnx_graph_keeps_the_sessions_of_two_numbers_of_threads(saved: Path) -> None:
    """One holds all weights; a program may try many numbers."""
    model, before = load(saved, "cpu", "onnx"), torch.get_num_threads()
    full = model.sample(2)
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            assert torch.equal(model.sample(2).codes, full.codes)
    finally:
        torch.set_num_threads(before)
    assert isinstance(model.engine, OnnxEngine)
    assert list(model.engine._decoder._sessions) == [3, 1]


@needs_bf16
def test_bf16_is_an_option_that_changes_few_codes() -> None:
    model, exact = load("cifar10", "cpu", precision="bf16"), load("cifar10", "cpu")
    assert (model.engine.name, model.engine.precision) == ("packed", "bf16")
    sample, full = model.sample(8, seed=5), exact.sample(8, seed=5)
    assert 0.3 < (sample.codes == full.codes).float().mean() < 1
    assert torch.equal(sample.codes, model.sample(8, seed=5).codes)
    assert torch.equal(model.sample(8, seed=5, codes=4).codes, sample.codes[:, :4])


@needs_bf16
@pytest.mark.parametrize("rows", [1, 65])
def test_bf16_decodes_close_to_fp32(rows: int) -> None:
    model = load("mnist", "cpu", precision="bf16")
    codes = torch.randint(model.codebook_size, (rows, 3), generator=torch.Generator().manual_seed(0))
    x, exact = model.engine.decode(codes), model.decode(codes)
    assert x.shape == exact.shape and x.dtype is torch.float32
    assert TOLERANCE < (x - exact).abs().mean() < 2e-3


def test_a_kv_cache_that_does_not_fit_halves_the_microbatch(model: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch raises a RuntimeError, numpy a MemoryError."""
    packed = model.use("packed")
    full, start = packed.sample(6, seed=5), PackedTransformer.start

    def fail(self: PackedTransformer, batch: int) -> Any:
        if batch > 3:
            raise MemoryError("Unable to allocate 1. TiB")
        return start(self, batch)

    monkeypatch.setattr(PackedTransformer, "start", fail)
    with pytest.warns(anytime.MemoryWarning, match="6 rows do not fit into memory; continuing with 3"):
        assert torch.equal(packed.sample(6, seed=5).codes, full.codes)
