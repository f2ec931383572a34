"""The megakernel engine on a GPU: against the eager and the cuda engine, and where it leaves the work to the cuda engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from anytime.model import AnytimeModel, load
from anytime.recipes.presets import preset
from anytime.sampling.budget import Budget
from anytime.sampling.engines.cuda_megakernel import MegakernelEngine
from anytime.sampling.gumbel import gumbel
from anytime.sampling.kernels import megakernel
from anytime.sampling.kernels.cooperative import CooperativeKernel
from anytime.sampling.kernels.megakernel import fit
from anytime.sampling.kernels.nvrtc import KernelError, compile_cubin

pytestmark = pytest.mark.gpu
TIE = 2e-4  # of noised logits about 10 in size, in float32 summed in another order
INTEGRATED = 18  # an attribute that a GPU with its own memory does not have
NAMES = ("cifar10", "mnist", "paper")
WIDTHS = {"cifar10": 320, "mnist": 192, "paper": 512}


Models = dict[str, tuple[AnytimeModel, AnytimeModel]]


@pytest.fixture(scope="module")
def models() -> Models:
    """Eager and megakernel, with the same weights."""
    return {name: (build(name), build(name)) for name in NAMES}


def build(name: str) -> AnytimeModel:
    if name != "paper":
        return load(name, "cuda")
    torch.manual_seed(0)
    model = AnytimeModel(preset("cifar10", "paper", (3, 32, 32)).model).cuda().eval()
    with torch.no_grad():
        for parameter in model.prior.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model


def use(model: AnytimeModel, precision: str) -> MegakernelEngine:
    engine = model.use("megakernel", precision).engine
    assert isinstance(engine, MegakernelEngine)
    return engine


def margins(model: AnytimeModel, codes: Tensor, seed: int) -> Tensor:
    """How much better the best code of each position is than the one sampled: 0 if that is the best."""
    with torch.no_grad():
        logits = model.prior(codes) / model.settings().temperature
    rows = torch.arange(len(codes), device=codes.device)
    noise = torch.stack([gumbel(seed, rows, i, model.codebook_size) for i in range(codes.shape[1])], 1)
    noised = logits + noise
    return noised.amax(-1) - noised.gather(2, codes[..., None])[..., 0]


@pytest.mark.parametrize("name", NAMES)
def test_in_fp32_the_codes_are_those_of_the_eager_engine_but_for_ties(models: Models, name: str) -> None:
    eager, model = models[name]
    assert eager.config.prior.width == WIDTHS[name]  # type: ignore[union-attr]
    engine = use(model, "fp32")
    for n, seed in product((1, 2, 3, 8), range(4)):
        codes, expected = model.sample(n, seed=seed).codes, eager.use("eager", "fp32").sample(n, seed=seed).codes
        assert (codes != expected).any(1).sum() <= 1
        assert margins(eager, codes, seed).max() < TIE
    assert set(engine.unusable) >= {2, 4, 8} if name == "paper" else not engine.unusable, engine.unusable
    assert all("bytes of shared memory" in reason for reason in engine.unusable.values())


@pytest.mark.parametrize("name", NAMES)
def test_in_bf16_the_codes_are_as_good_as_those_of_the_cuda_engine(models: Models, name: str) -> None:
    reference, model = models[name]
    engine, cases = use(model, "bf16"), list(product((1, 2, 3, 8), range(8)))
    ours, theirs = (
        torch.cat([margins(reference, each.sample(n, seed=seed).codes, seed).flatten() for n, seed in cases])
        for each in (model, reference.use("cuda", "bf16"))
    )
    assert ours.max() <= 2 * theirs.max() + 0.01 and (ours > 0).sum() <= 2 * (theirs > 0).sum() + 5
    assert not engine.unusable


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 3, 8])
def test_however_it_is_sampled_the_codes_are_the_same(models: Models, name: str, n: int) -> None:
    model = models[name][1]
    engine, half = use(model, "bf16"), model.length // 2
    full = model.sample(n, seed=5).codes
    for _ in range(20):
        assert torch.equal(model.sample(n, seed=5).codes, full)
    assert torch.equal(model.sample(n, seed=5, within=30.0).codes, full), "one step a launch"
    assert torch.equal(model.sample(n, seed=5, codes=half).codes, full[:, :half])
    assert torch.equal(model.refine(model.sample(n, seed=5, codes=half)).codes, full)
    assert torch.equal(model.sample(n, seed=5, prefix=full[:, :3]).codes, full)
    for sample in model.stream(n, seed=5, every=5):
        assert torch.equal(sample.codes, full[:, : sample.codes.shape[1]])
    stop = threading.Event()
    stopped = model.sample(n, seed=5, stop=stop, progress=lambda codes, seconds: stop.set() if codes == 4 else None)
    assert torch.equal(stopped.codes, full[:, :4])
    assert not engine.unusable


def test_it_takes_turns_with_the_graphs_after_any_code(models: Models) -> None:
    """The state is in the same buffers: fp32, so that both give the same codes."""
    eager, model = models["cifar10"]
    engine = use(model, "fp32")
    for n in (1, 3, 8):
        session = model.session(n, seed=7)
        for count in range(1, model.length + 1):
            engine.unusable = {8: "a test", 4: "a test", 1: "a test"} if count % 2 else {}
            codes = session.run(Budget(codes=count)).codes
        assert margins(eager, codes, 7).max() < TIE
    engine.unusable = {}


def test_sessions_take_turns_on_the_same_buffers(models: Models) -> None:
    model = models["cifar10"][1]
    engine = use(model, "bf16")
    expected = [model.sample(3, seed=1).codes, model.sample(4, seed=2, top_k=9).codes, model.sample(4, seed=3).codes]
    sessions = [model.session(3, seed=1), model.session(4, seed=2, top_k=9), model.session(4, seed=3)]
    for count in (2, 3, 11, 20):
        for session, full in zip(sessions, expected, strict=True):
            assert torch.equal(session.run(Budget(codes=count)).codes, full[:, :count])
    first, full = model.session(3, seed=1), expected[0]
    first.run(Budget(codes=9))
    engine.release()
    assert torch.equal(first.codes, full[:, :9])
    assert torch.equal(first.run(Budget(codes=20)).codes, full)


def test_a_deadline_ends_it_early_and_in_time(models: Models) -> None:
    model = models["paper"][1]
    use(model, "bf16")
    full = model.sample(1, seed=5).codes
    whole = model.sample(1, seed=5, within=10.0).seconds
    late = []
    for _ in range(50):
        sample = model.sample(1, seed=5, within=whole / 2)
        assert torch.equal(sample.codes, full[:, : sample.codes.shape[1]]) and 5 < sample.codes.shape[1] < 70
        late.append(sample.seconds / (whole / 2))
    assert sorted(late)[45] <= 1.1


def test_threads_may_share_a_model(models: Models) -> None:
    model, found = models["cifar10"][1], {}
    use(model, "bf16")
    expected = {seed: model.sample(8, seed=seed).codes for seed in range(4)}

    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: model.sample(8, seed=seed).codes})) for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[seed], expected[seed]) for seed in range(4))


def changed(old: str, new: str) -> Callable[[megakernel.Shape, torch.device], CooperativeKernel]:
    """Return `compile_kernel` for a source with a change."""

    def compile_changed(shape: megakernel.Shape, device: torch.device) -> CooperativeKernel:
        source = megakernel.SOURCE.read_text(encoding="utf-8")
        assert source.count(old) == 1
        cubin = compile_cubin(source.replace(old, new), "changed.cu", torch.cuda.get_device_capability(device), shape.macros)
        return CooperativeKernel(cubin, "megakernel", device, blocks=shape.blocks, threads=megakernel.THREADS)

    return compile_changed


def test_a_message_that_never_comes_ends_the_launch(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once at the first launch, and once in the middle of a session: nothing is sent from the eighth position on."""
    model = models["cifar10"][1]
    post = "FN void post(u64* p, u32 value, u32 epoch) {\n"
    for condition, unusable in (
        ("blockIdx.x == 3", "its blocks do not receive each other's messages"),
        (f"blockIdx.x == 3 && epoch > {1 + 8 * 6}", "a launch has waited too long for its own messages"),
    ):
        monkeypatch.setattr(megakernel, "compile_kernel", changed(post, f"{post}    if ({condition}) return;\n"))
        engine = use(model, "fp32")
        session, began = model.session(1, seed=5), time.perf_counter()
        first = session.run(Budget(codes=4)).codes
        codes = session.run(Budget(codes=20)).codes
        assert torch.equal(codes[:, :4], first)
        assert margins(models["cifar10"][0], codes, 5).max() < TIE
        assert engine.unusable == {1: unusable}
        assert time.perf_counter() - began < 60, "with compiling, and capturing the graphs"
    monkeypatch.undo()


def test_what_is_lacking_leaves_the_work_to_the_cuda_engine(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    eager, model = models["mnist"]
    cooperative = "anytime.sampling.kernels.cooperative"
    memory = changed("    int code[ROWS],", "    char unused[1 << 18];\n    int code[ROWS],")
    wrong = changed("constexpr int THREADS = 256,", "constexpr int THREAD = 256,")
    lacks: dict[str, tuple[object, str, object]] = {
        "NVRTC 12 or newer is not installed": (megakernel, "compile_cubin", without_nvrtc),
        "the GPU has compute capability 7.5": (torch.cuda, "get_device_capability", lambda device=None: (7, 5)),
        "no cooperative launch": (cooperative, "DEVICE_COOPERATIVE_LAUNCH", INTEGRATED),
        "bytes of shared memory": (megakernel, "compile_kernel", memory),
        "NVRTC reports NVRTC_ERROR_COMPILATION": (megakernel, "compile_kernel", wrong),
        "are not a power of two": (megakernel, "fit", lambda config, *others: fit(replace(config, heads=16), *others)),
    }
    for reason, (place, name, value) in lacks.items():
        megakernel.compile_kernel.cache_clear()
        with monkeypatch.context() as context:
            if isinstance(place, str):
                context.setattr(f"{place}.{name}", value)
            else:
                context.setattr(place, name, value)
            engine = use(model, "fp32")
            codes = model.sample(1, seed=3).codes
        assert margins(eager, codes, 3).max() < TIE
        assert set(engine.unusable) == {1} and reason in engine.unusable[1], engine.unusable
    megakernel.compile_kernel.cache_clear()


def without_nvrtc(*arguments: object) -> bytes:
    raise KernelError("NVRTC 12 or newer is not installed")
