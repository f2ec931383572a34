"""The cuda engine against the eager one, on a GPU: laws 2, 3 and 9, and batches that share buffers."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from anytime.model import AnytimeModel, load
from anytime.recipes.presets import preset
from anytime.sampling.engines.base import Request
from anytime.sampling.engines.cuda_decoder import CudaDecoder
from anytime.sampling.gumbel import SamplingSettings, filter_logits, gumbel
from anytime.sampling.slots import SlotGroup, build_slots
from anytime.training.config import Recipe

pytestmark = pytest.mark.gpu
TIE = 2e-4  # of noised logits about 10 in size, in float32 summed in another order
EDGE = 2e-5  # of the mass at the edge of the top p
FILTERED: dict[str, Any] = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}


@pytest.fixture(scope="module")
def models() -> tuple[AnytimeModel, AnytimeModel]:
    return both("paper")


def both(which: Recipe) -> tuple[AnytimeModel, AnytimeModel]:
    """A recipe's CIFAR-10 shape with weights far from their initial values, eager and cuda."""
    torch.manual_seed(0)
    eager, cuda = (AnytimeModel(preset("cifar10", which, (3, 32, 32)).model).cuda().eval() for _ in range(2))
    with torch.no_grad():
        for parameter in eager.prior.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    cuda.load_state_dict(eager.state_dict())
    return eager, cuda.use("cuda", "fp32")


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, FILTERED], ids=["plain", "cool", "filtered"])
@pytest.mark.parametrize("n", [1, 17, 200, 300, 5000])
def test_in_fp32_it_samples_the_eager_codes_but_for_ties(
    models: tuple[AnytimeModel, AnytimeModel], n: int, settings: dict[str, Any]
) -> None:
    check_codes(models, n, settings)


def test_a_width_that_is_not_a_power_of_two() -> None:
    """Our recipe's prior."""
    models = both("best")
    for n in (1, 100, 300):
        check_codes(models, n, {})
    for n in (1, 20, 100, 300):
        assert models[1].use("cuda", "bf16").sample(n, seed=3).codes.shape == (n, models[1].length)


def check_codes(models: tuple[AnytimeModel, AnytimeModel], n: int, settings: dict[str, Any]) -> None:
    eager = models[0]
    a, b = (model.sample(n, seed=3, **settings).codes for model in models)
    parted = (a != b).any(1).nonzero()[:, 0]
    assert len(parted) <= max(1, n // 1000)
    for row in parted.tolist():
        position = int((a[row] != b[row]).nonzero()[0])
        logits = eager.prior(a[row : row + 1])[:, position]
        noise = gumbel(3, torch.tensor([row], device=a.device), position, eager.codebook_size)
        one, other = int(a[row, position]), int(b[row, position])
        assert is_tie(one, other, logits, noise, settings) and is_tie(other, one, logits, noise, settings)


def is_tie(code: int, rival: int, logits: Tensor, noise: Tensor, settings: dict[str, Any]) -> bool:
    """Return whether rounding in favour of a code makes it win: two are equally good, or one is at the edge of a filter."""
    favoured = logits.clone()
    favoured[0, code] += TIE / 4
    favoured[0, rival] -= TIE / 4
    for cut in settings_at_edges(logits, settings):
        noised = filter_logits(favoured, SamplingSettings(**cut)) + noise
        if noised.max() - noised[0, code] < TIE:
            return True
    return False


def settings_at_edges(logits: Tensor, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings, and what rounding may make of them: one more code in the top k if two are equally good, which changes all
    probabilities; a little more or less mass."""
    k, p = settings.get("top_k"), settings.get("top_p")
    kept = [k]
    if k is not None:
        last, next_one = logits[0].sort(descending=True).values[k - 1 : k + 1].tolist()
        kept += [k + 1] if last - next_one < TIE / 4 else []
    for top_k in kept:
        yield from (settings | {"top_k": top_k, "top_p": mass} for mass in ([None] if p is None else [p, p - EDGE, p + EDGE]))


def test_it_decodes_as_the_eager_engine_does(models: tuple[AnytimeModel, AnytimeModel]) -> None:
    eager, cuda = models
    codes = eager.sample(600, seed=1).codes
    for n, k in ((1, 70), (100, 1), (600, 30), (5, 0)):
        with torch.no_grad():
            torch.testing.assert_close(cuda.engine.decode(codes[:n, :k]), eager.decode(codes[:n, :k]), atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "paper"])
@torch.no_grad()
def test_in_bf16_the_fused_decoder_is_as_accurate_as_cudnn(name: str, models: tuple[AnytimeModel, AnytimeModel]) -> None:
    model = models[0] if name == "paper" else load(name, device="cuda")
    codes = model.sample(600, seed=1).codes
    fused, library = (CudaDecoder(model.autoencoder, torch.bfloat16) for _ in range(2))
    assert fused.fused_convs is not None
    library.fused_convs = None
    for n, k in ((1, model.length), (20, model.length), (100, 1), (100, model.length), (600, model.length // 2), (5, 0)):
        exact = model.autoencoder.decode(codes[:n, :k])
        by_fused, by_library = ((decoder(codes[:n, :k]) - exact).abs().mean() for decoder in (fused, library))
        assert by_fused <= 1.5 * by_library and by_library < 2e-3, (n, k)  # both may be exact without codes


@pytest.mark.parametrize("which", ["paper", "best"])
def test_audio_is_decoded_as_the_eager_engine_does(which: str) -> None:
    config = preset("audiomnist", which, (1, 15_360)).model  # type: ignore[arg-type]
    torch.manual_seed(0)
    eager, cuda = (AnytimeModel(config).cuda().eval() for _ in range(2))
    torch.nn.init.normal_(eager.autoencoder.quantizer.codebook, std=0.1)
    cuda.load_state_dict(eager.state_dict())
    cuda.use("cuda", "fp32")
    codes = torch.randint(512, (600, 128), device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    for n, k in ((1, 128), (20, 8), (600, 32), (5, 0)):
        with torch.no_grad():
            torch.testing.assert_close(cuda.engine.decode(codes[:n, :k]), eager.decode(codes[:n, :k]), atol=2e-3, rtol=0)
    assert cuda.sample(3, seed=0, codes=8).data.shape == (3, 1, 15_360)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("n", [1, 100, 5000])
def test_stopping_and_continuing_give_the_codes_of_one_run(
    models: tuple[AnytimeModel, AnytimeModel], n: int, precision: str
) -> None:
    model = models[1].use("cuda", precision)
    full = model.sample(n, seed=5).codes
    assert torch.equal(model.sample(n, seed=5).codes, full)
    assert torch.equal(model.sample(n, seed=5, codes=20).codes, full[:, :20])
    assert torch.equal(model.refine(model.sample(n, seed=5, codes=20)).codes, full)
    assert torch.equal(model.sample(n, seed=5, prefix=full[:, :7]).codes, full)
    for sample in model.stream(n, seed=5, every=30):
        assert torch.equal(sample.codes, full[:, : sample.codes.shape[1]])
    assert sample.codes.shape[1] == 70
    models[1].use("cuda", "fp32")


def test_two_interleaved_sessions_are_independent(models: tuple[AnytimeModel, AnytimeModel]) -> None:
    from anytime.sampling.budget import Budget

    model = models[1]
    one, other = model.sample(40, seed=1).codes, model.sample(37, seed=2, **FILTERED).codes
    first, second = model.session(40, seed=1), model.session(37, seed=2, **FILTERED)
    for count in range(7, 71, 7):
        a, b = first.run(Budget(codes=count)), second.run(Budget(codes=count))
        assert torch.equal(a.codes, one[:, :count])
        assert torch.equal(b.codes, other[:, :count])


def test_a_session_continues_after_memory_was_released(models: tuple[AnytimeModel, AnytimeModel]) -> None:
    from anytime.sampling.budget import Budget

    model = models[1]
    full, session = model.sample(40, seed=1).codes, model.session(40, seed=1)
    assert torch.equal(session.run(Budget(codes=9)).codes, full[:, :9])
    model.engine.release()
    assert torch.equal(session.codes, full[:, :9])
    assert torch.equal(session.run(Budget(codes=70)).codes, full)


def test_threads_may_share_a_model(models: tuple[AnytimeModel, AnytimeModel]) -> None:
    model, found = models[1], {}
    expected = {seed: model.sample(8, seed=seed).codes for seed in range(4)}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: model.sample(8, seed=seed).codes})) for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[seed], expected[seed]) for seed in range(4))


def test_a_deadline_and_a_stop_end_it_early(models: tuple[AnytimeModel, AnytimeModel]) -> None:
    model = models[1].use("cuda", "bf16")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.sample(3000, within=0.2)  # warns of a warm-up longer than a twentieth of it
    assert any("warmed up for 3000 rows" in str(w.message) for w in said)
    full = model.sample(3000, within=10.0)
    half = model.sample(3000, within=full.seconds / 2)
    assert half.seconds <= full.seconds / 2 * 1.1
    assert 10 < half.codes.shape[1] < 60
    stop = threading.Event()
    stopped = model.sample(3000, stop=stop, progress=lambda codes, seconds: stop.set() if codes == 9 else None)
    assert stopped.codes.shape[1] == 9
    models[1].use("cuda", "fp32")


def test_a_microbatch_that_does_not_fit_is_halved_with_a_warning(models: tuple[AnytimeModel, AnytimeModel]) -> None:
    model = models[1].use("cuda", "bf16")
    model.engine.block = model.engine.microbatch = 1 << 20  # type: ignore[misc]  # 900 GB of cache
    with pytest.warns(UserWarning, match="rows do not fit into memory; continuing with"):
        sample = model.sample(1 << 18, codes=1)
    assert len(sample.rows) == 1 << 18
    models[1].use("cuda", "fp32")
    torch.cuda.empty_cache()


@pytest.mark.parametrize("seed", range(3))
def test_slots_sample_the_eager_codes_whatever_is_beside_them(models: tuple[AnytimeModel, AnytimeModel], seed: int) -> None:
    """Requests of all settings join, are stepped in random subsets and leave at random."""
    eager, cuda = models
    rng = random.Random(seed)
    table = build_slots(cuda.engine, 48)
    active, parted, rows = list[tuple[Request, SlotGroup]](), 0, 0
    for number in range(60):
        n, given = rng.randint(1, 12), rng.choice((0, 0, 3))
        if n <= table.free:
            prefix = torch.randint(0, cuda.codebook_size, (n, given), generator=torch.Generator().manual_seed(number))
            settings = rng.choice((SamplingSettings(), SamplingSettings(temperature=0.7), SamplingSettings(**FILTERED)))
            request = Request(prefix, torch.tensor(rng.sample(range(1000), n)), rng.randrange(1 << 40), settings, cuda.hash)
            active.append((request, table.join(request)))
        for _ in range(rng.randint(1, 12)):
            some = [group for _, group in active if group.position < cuda.length and rng.random() < 0.8]
            if some:
                table.step(some)
        for request, group in list(active):
            if group.count and rng.random() < 0.2:
                found = table.codes(group)
                expected = eager.sampler.session(request).generate_codes(cuda.length)[:, : found.shape[1]]
                parted, rows = parted + int((found != expected).any(1).sum()), rows + len(found)
                table.leave(group)
                active = [pair for pair in active if pair[1] is not group]
    assert rows > 50 and parted <= max(1, rows // 200), "but for ties"


def test_a_server_on_a_gpu_answers_with_the_codes_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from anytime.server.engine import start
    from anytime.server.messages import EngineSettings

    (served,) = start(EngineSettings(models=("cifar10",), device="cuda", precision="fp32", slots=64))
    model = served.model
    request = Request(torch.empty(5, 0, dtype=torch.long), torch.arange(5), 3, model.settings(), model.hash)
    group = served.table.join(request)
    while group.count < model.length:
        served.table.step([group])
    codes, expected = served.table.codes(group), model.sample(5, seed=3)
    assert (codes == expected.codes).all(1).double().mean() > 0.7, "but for ties"
    data = served.table.decode(expected.codes)
    torch.testing.assert_close(data, expected.data, atol=1e-3, rtol=0)
    assert served.costs.step(8) < 0.002 and served.costs.batch >= 16
