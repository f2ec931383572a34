"""The megakernel without a GPU: its source runs in an emulator, and compiles for GPUs if NVRTC is installed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anytime.priors.transformer import Transformer, TransformerConfig
from anytime.sampling.engines.base import Request
from anytime.sampling.engines.cuda_step import StepBuffers, cast_prior
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.gumbel import SamplingSettings, gumbel
from anytime.sampling.kernels import cooperative
from anytime.sampling.kernels.cooperative import CooperativeKernel
from anytime.sampling.kernels.megakernel import MAX_ROWS, SOURCE, THREADS, Megakernel, Shape, compile_kernel, fit
from anytime.sampling.kernels.nvrtc import KernelError, compile_cubin, load_nvrtc

from .emulator import REASON, Emulator, compile_emulator

emulated = pytest.mark.skipif(bool(REASON), reason=REASON)
TIE = {torch.float32: 2e-4, torch.bfloat16: 1e-2}
"""Difference of noised logits, about 10 in size, that rounding explains: one value in thousands falls on the other side of a
rounding to bf16 if its sum was added up in another order."""
CACHE_ERROR = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # of keys and values up to 5 in size


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulators")


@dataclass(frozen=True)
class Work:
    """Rows of two requests in one batch, the second one with given codes, another seed and another temperature."""

    prior: Transformer
    kernel: Megakernel
    emulator: Emulator
    buffers: StepBuffers
    requests: list[Request]

    def run(self, *launches: int) -> Tensor:
        """Run launches from the first position on, in another order of blocks each; return the codes."""
        self.buffers.position.zero_()
        self.buffers.keys.fill_(torch.nan)
        self.buffers.values.fill_(torch.nan)
        first = 0
        for request in self.requests:
            rows = slice(first, first + len(request.rows))
            self.buffers.write(rows, request, self.prior.codebook_size)
            first = rows.stop
        for number, steps in enumerate(launches):
            self.emulator.seed = number
            self.kernel.launch(steps)
        assert not self.kernel.has_failed
        return self.buffers.codes[:first].long().clone()


def perturbed(config: TransformerConfig) -> Transformer:
    """A prior whose codes vary: embeddings of the positions count, and no weight or bias is zero."""
    torch.manual_seed(0)
    prior = Transformer(config).eval().requires_grad_(False)
    for parameter in prior.parameters():
        parameter += 0.05 * torch.randn_like(parameter)
    nn.init.normal_(prior.positions.weight, std=0.5)
    return prior


def build(config: TransformerConfig, rows: int, active: int, dtype: torch.dtype, processors: int, folder: Path) -> Work:
    prior = perturbed(config)
    cast = cast_prior(prior, dtype)
    emulator = Emulator(fit(config, rows, dtype, processors), folder)
    buffers = StepBuffers.empty(cast, rows, torch.device("cpu"))
    kernel = Megakernel(emulator, cast, buffers)
    emulator.readable = [*cast.parameters(), buffers.keys, buffers.values, kernel._mail]
    alone = max(1, active // 2)
    others, given = active - alone, torch.tensor([[3, 1]])
    requests = [
        Request(torch.empty(alone, 0, dtype=torch.long), torch.arange(alone) * 7 + 2, 5, SamplingSettings(), ""),
        Request(given.expand(others, -1), torch.arange(others) + 90, 1 << 40, SamplingSettings(temperature=0.7), ""),
    ]
    return Work(prior, kernel, emulator, buffers, [request for request in requests if len(request.rows)])


def forward(prior: Transformer, codes: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, keys and values of all positions, in float32 with the roundings of the cuda engine's kernels."""
    c = prior.config
    network = cast_prior(prior, dtype).float()

    def rounded(x: Tensor) -> Tensor:
        return x.to(dtype).float()

    def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
        return rounded(F.layer_norm(x, (c.width,), layer.weight, layer.bias, layer.eps))

    tokens = F.pad(codes[:, :-1], (1, 0), value=c.codebook_size)
    h = norm(network.tokens.weight[tokens] + network.positions.weight, network.embedding_norm)
    keys, values = [], []
    for block in network.block_list():
        query, key, value = rounded(block.qkv(h)).unflatten(-1, (3, c.heads, -1)).permute(2, 0, 3, 1, 4)
        keys.append(key)
        values.append(value)
        attended = rounded(F.scaled_dot_product_attention(query, key, value, is_causal=True)).transpose(1, 2).flatten(2)
        h = norm(h + block.out(attended), block.attention_norm)
        h = norm(h + block.down(rounded(F.relu(block.up(h)))), block.norm)
    return network._logits(h), torch.stack(keys), torch.stack(values)


SHAPES = {
    "192": (TransformerConfig(length=5, codebook_size=41, layers=1, width=192, hidden=256, heads=3), 8, 8, torch.bfloat16, 26),
    "320": (TransformerConfig(length=5, codebook_size=50, layers=1, width=320, hidden=320, heads=5), 4, 3, torch.bfloat16, 23),
    "512": (TransformerConfig(length=6, codebook_size=30, layers=2, width=512, hidden=512, heads=8), 1, 1, torch.bfloat16, 17),
    "fp32": (TransformerConfig(length=18, codebook_size=9, layers=2, width=128, hidden=96, heads=2), 2, 2, torch.float32, 11),
}
"""Prior, rows of the batch, rows in use, precision, processors. Some products are split over warps; shares are unequal."""


@emulated
@pytest.mark.parametrize("name", SHAPES)
def test_its_codes_are_those_of_the_eager_engine(name: str, folder: Path) -> None:
    config, rows, active, dtype, processors = SHAPES[name]
    work = build(config, rows, active, dtype, processors, folder)
    codes = work.run(1, 2, config.length - 3)
    assert work.buffers.position.tolist() == [config.length] * active + [0] * (rows - active), "inactive rows are not stepped"
    assert work.buffers.keys[:, active:].isnan().all(), "and their cache is not written"
    logits, keys, values = forward(work.prior, codes, dtype)
    for found, expected in ((work.buffers.keys, keys), (work.buffers.values, values)):
        torch.testing.assert_close(found[:, :active].float(), expected, atol=CACHE_ERROR[dtype], rtol=0)
    first = 0
    for request in work.requests:
        mine = slice(first, first := first + len(request.rows))
        prefix = request.codes.shape[1]
        assert torch.equal(codes[mine, :prefix], request.codes)
        noise = torch.stack([gumbel(request.seed, request.rows, i, config.codebook_size) for i in range(config.length)], 1)
        noised = (logits[mine] / request.settings.temperature + noise)[:, prefix:]
        margin = noised.amax(-1) - noised.gather(2, codes[mine, prefix:, None])[..., 0]
        assert margin.numel() == 0 or margin.max() < TIE[dtype], "equal but for ties, position by position"
        assert margin.numel() == 0 or (margin == 0).double().mean() >= 0.95
        if dtype is torch.float32:
            eager = EagerEngine(work.prior, lambda codes: codes, torch.device("cpu"))
            batch = eager.start(request)
            eager.step(batch, config.length)
            assert torch.equal(eager.codes(batch), codes[mine]), "no tie is among these few codes"
    assert len(codes.unique()) > 3, "they vary"
    if dtype is torch.float32:
        assert torch.equal(codes, work.run(config.length)), "in one launch or in several"


@emulated
def test_it_continues_from_a_cache_that_another_kernel_has_filled(folder: Path) -> None:
    """As after a change from the graphs: the buffers hold codes, positions and cache, and nothing else is passed on."""
    config, rows, active, dtype, processors = SHAPES["fp32"]
    work = build(config, rows, active, dtype, processors, folder)
    codes = work.run(config.length)
    _, keys, values = forward(work.prior, codes, dtype)
    work.run(3)
    work.buffers.keys[:, :active, :, :3], work.buffers.values[:, :active, :, :3] = keys[..., :3, :], values[..., :3, :]
    work.buffers.position[:active] = torch.tensor([3, 2])  # the second row takes a step again
    work.kernel.launch(2)
    assert work.buffers.position.tolist() == [5, 4]
    assert torch.equal(work.buffers.codes[:active, :4].long(), codes[:, :4])
    work.kernel.launch(config.length)  # more steps than are left: a finished row stays as it is
    work.kernel.launch(1)
    assert work.buffers.position.tolist() == [config.length] * active
    assert torch.equal(work.buffers.codes.long(), codes)


@emulated
def test_a_lost_message_ends_the_launch_with_a_report(folder: Path) -> None:
    config, rows, active, dtype, processors = SHAPES["fp32"]
    work = build(config, rows, active, dtype, processors, folder)
    shape = fit(config, rows, dtype, processors)
    emulator = Emulator(shape, folder, patience=1 << 12)
    kernel = Megakernel(emulator, cast_prior(work.prior, dtype), work.buffers)
    emulator.readable = [*kernel._kept[0].parameters(), work.buffers.keys, work.buffers.values, kernel._mail]
    emulator.silent_block = 5
    work.run(1)
    kernel.launch(2)
    assert kernel.has_failed
    assert work.buffers.codes.min() >= 0 and work.buffers.codes.max() < config.codebook_size, "codes are still in range"
    emulator.silent_block = -1
    kernel.launch(2)  # epochs go on, so what the failed launch has left does not matter
    assert kernel.has_failed, "a failure is not forgotten"


@pytest.mark.parametrize(
    ("change", "rows", "processors", "reason"),
    [
        ({"width": 480}, 1, 132, "heads of 60 elements are not a power of two from 8 to 256"),
        ({"hidden": 2052}, 1, 132, "a feed-forward layer of 2052 is not a multiple of 8"),
        ({}, 16, 132, "batches of 16 rows are too large for it"),
        ({}, 8, 40, "8 heads and 8 rows need 64 blocks, and it can use 40"),
        ({"hidden": 64}, 8, 132, "8 heads and 8 rows need 64 blocks, and it can use 32"),
    ],
)
def test_a_shape_that_it_does_not_know_is_refused_with_the_reason(
    change: dict[str, int], rows: int, processors: int, reason: str
) -> None:
    config = replace(TransformerConfig(length=70, codebook_size=1000), **change)
    with pytest.raises(KernelError, match=f"^{reason}$"):
        fit(config, rows, torch.bfloat16, processors)


@pytest.mark.parametrize(("width", "heads", "hidden", "blocks"), [(512, 8, 2048, 128), (320, 5, 1280, 130), (192, 3, 768, 132)])
def test_an_h200_is_filled_at_our_widths(width: int, heads: int, hidden: int, blocks: int) -> None:
    config = TransformerConfig(length=70, codebook_size=1000, width=width, heads=heads, hidden=hidden)
    assert {fit(config, rows, torch.bfloat16, 132).blocks for rows in (1, 2, 4, MAX_ROWS)} == {blocks}


def nvrtc_is_missing() -> bool:
    try:
        load_nvrtc()
    except KernelError:
        return True
    return False


@pytest.mark.skipif(nvrtc_is_missing(), reason="NVRTC comes with PyTorch for GPUs, or as the package nvidia-cuda-nvrtc")
@pytest.mark.parametrize("capability", [(9, 0), (8, 0)])
def test_it_compiles_for_gpus(capability: tuple[int, int]) -> None:
    for shape in (
        fit(TransformerConfig(length=70, codebook_size=1000), 1, torch.bfloat16, 108),
        fit(TransformerConfig(length=16, codebook_size=126, layers=4, width=192, hidden=768, heads=3), 8, torch.float32, 108),
    ):
        cubin = compile_cubin(SOURCE.read_text(encoding="utf-8"), SOURCE.name, capability, shape.macros)
        assert cubin.startswith(b"\x7fELF") and b"megakernel" in cubin
    wrong = Shape(shape.config, shape.rows, shape.blocks + 1, shape.is_bf16)
    with pytest.raises(KernelError, match="blocks of a head"):
        compile_cubin(SOURCE.read_text(encoding="utf-8"), SOURCE.name, capability, wrong.macros)


class Gpu:
    """A GPU of the emulator: the driver's functions are replaced, and torch's that name a device."""

    def __init__(self, work: Work, folder: Path, monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
        config, rows, _, dtype, _ = SHAPES["fp32"]
        self.shape, self.work = fit(config, rows, dtype, processors), work
        self.driver = ctypes.CDLL(str(compile_emulator(self.shape, folder, 1 << 30)))
        self.device = torch.device("cpu")
        stream = SimpleNamespace(cuda_stream=0x7000000000000005)
        monkeypatch.setattr(cooperative, "_load_driver", lambda: self.driver)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=processors)
        )

    def load(self, *, cooperative_launch: int = 1, memory: int = 232448, blocks: int = 1, status: int = 0) -> Megakernel:
        self.driver.set_gpu(cooperative_launch, memory, blocks, status)
        cubin = b"cubin\0\1"
        kernel = CooperativeKernel(cubin, "megakernel", self.device, blocks=self.shape.blocks, threads=THREADS)
        return Megakernel(kernel, self.work.kernel._kept[0], self.work.buffers)


@pytest.fixture
def gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    config, rows, active, dtype, processors = SHAPES["fp32"]
    return Gpu(build(config, rows, active, dtype, processors, folder), folder, monkeypatch, processors)


@emulated
def test_the_driver_gets_what_the_kernel_needs(gpu: Gpu) -> None:
    codes = gpu.work.run(6)[:, :6].clone()
    kernel = gpu.load()
    gpu.work.buffers.position.zero_()
    gpu.work.buffers.codes[:, 2:] = 0  # but not the codes given
    kernel.launch(2)
    kernel.launch(4)
    assert not kernel.has_failed
    assert torch.equal(gpu.work.buffers.codes[:, :6].long(), codes)
    assert gpu.driver.context_depth() == 0, "the caller's context is current again"


@emulated
@pytest.mark.parametrize(
    ("lack", "reason"),
    [
        ({"cooperative_launch": 0}, "the driver or the GPU has no cooperative launch"),
        ({"memory": 20_000}, "a block needs [0-9,]+ bytes of shared memory, and this GPU has 20,000"),
        ({"blocks": 0}, "10 blocks must run at once, and this GPU runs 0"),
    ],
)
def test_a_gpu_that_lacks_something_is_refused_with_the_reason(gpu: Gpu, lack: dict[str, int], reason: str) -> None:
    with pytest.raises(KernelError, match=f"^{reason}$"):
        gpu.load(**lack)
    assert gpu.driver.context_depth() == 0


@emulated
@pytest.mark.parametrize(("status", "text"), [(720, "too many blocks in cooperative launch"), (999, "error 999")])
def test_a_launch_that_the_driver_refuses_says_why(gpu: Gpu, status: int, text: str) -> None:
    kernel = gpu.load(status=status)
    with pytest.raises(KernelError, match=f"^cuLaunchCooperativeKernel reports {text}$"):
        kernel.launch(1)
    assert gpu.driver.context_depth() == 0


def test_without_a_driver_or_nvrtc_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError("no such file")))
    with pytest.raises(KernelError, match=r"^the CUDA driver cannot be loaded: no such file$"):
        cooperative._load_driver.__wrapped__()
    with pytest.raises(KernelError, match=r"^NVRTC 12 or newer is not installed$"):
        load_nvrtc.__wrapped__()


def test_an_old_gpu_is_refused_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = fit(TransformerConfig(length=70, codebook_size=1000), 1, torch.bfloat16, 68)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(KernelError, match=r"^the GPU has compute capability 7\.5, and it needs 8\.0$"):
        compile_kernel(shape, torch.device("cuda"))
