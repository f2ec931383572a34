"""The megakernel: all steps of the prior for a few rows in one cooperative launch. The kernel itself is `megakernel.cu`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from anytime.priors.transformer import Transformer, TransformerConfig
from anytime.sampling.engines.cuda_step import StepBuffers
from anytime.sampling.kernels.cooperative import CooperativeKernel
from anytime.sampling.kernels.nvrtc import KernelError, compile_cubin

SOURCE = Path(__file__).with_name("megakernel.cu")
MAX_ROWS = 8
THREADS = 256
MIN_CAPABILITY = (8, 0)
_EPOCHS = 1 << 32

# The fields of `Layer` and `Arguments` in the source, in their order.
_LAYER = ("qkv", "out", "up", "down", "attention_norm", "norm")  # each with a weight and a bias
_POINTERS = (
    "tokens", "positions", "embedding_norm", "embedding_norm_bias", "keys", "values", "codes", "position", "request",
    "temperature", "mail", "failed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """What the kernel is compiled for."""

    config: TransformerConfig
    rows: int
    blocks: int
    is_bf16: bool

    @property
    def macros(self) -> dict[str, int]:
        """Return the macros of the source."""
        c = self.config
        return {
            "LAYERS": c.layers, "WIDTH": c.width, "HIDDEN": c.hidden, "HEADS": c.heads, "LENGTH": c.length,
            "CODEBOOK": c.codebook_size, "ROWS": self.rows, "BLOCKS": self.blocks, "BF16": int(self.is_bf16),
        }  # fmt: skip


def fit(config: TransformerConfig, rows: int, dtype: torch.dtype, multiprocessors: int) -> Shape:
    """Return the shape for a prior and a batch size, or raise a `KernelError` with the reason.

    >>> fit(TransformerConfig(length=70, codebook_size=1000), 1, torch.bfloat16, 132).blocks
    128
    """
    per_word, per_vector, dim = 4 // dtype.itemsize, 16 // dtype.itemsize, config.width // config.heads
    if rows not in (1, 2, 4, MAX_ROWS):
        raise KernelError(f"batches of {rows} rows are too large for it")
    if dim & (dim - 1) or not per_vector <= dim <= 32 * per_vector:
        raise KernelError(f"heads of {dim} elements are not a power of two from {per_vector} to {32 * per_vector}")
    if config.hidden % per_vector:
        raise KernelError(f"a feed-forward layer of {config.hidden} is not a multiple of {per_vector}")
    # Every block needs an output of every layer, or it could miss a message.
    blocks = min(multiprocessors, config.width, config.hidden // per_word) // config.heads * config.heads
    if blocks < config.heads * rows:
        raise KernelError(f"{config.heads} heads and {rows} rows need {config.heads * rows} blocks, and it can use {blocks}")
    return Shape(config, rows, blocks, dtype is torch.bfloat16)


@runtime_checkable
class Launcher(Protocol):
    """Something that runs the kernel: a GPU, or an emulator in tests."""

    @property
    def mail_words(self) -> int:
        """Number of messages in memory."""

    def launch(self, arguments: ctypes.Structure) -> None:
        """Run, or queue, the kernel."""


@lru_cache(maxsize=32)
def compile_kernel(shape: Shape, device: torch.device) -> CooperativeKernel:
    """Compile and load the kernel, or raise a `KernelError` with the reason."""
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        found, least = (".".join(map(str, pair)) for pair in (capability, MIN_CAPABILITY))
        raise KernelError(f"the GPU has compute capability {found}, and it needs {least}")
    cubin = compile_cubin(SOURCE.read_text(encoding="utf-8"), SOURCE.name, capability, shape.macros)
    return CooperativeKernel(cubin, "megakernel", device, blocks=shape.blocks, threads=THREADS)


class Megakernel:
    """The kernel on one set of buffers of `rows` rows. `prior` and `buffers` are those of a `CudaStep`, and are kept alive."""

    def __init__(self, launcher: Launcher, prior: Transformer, buffers: StepBuffers) -> None:
        self._launcher, self._kept, self._layers = launcher, (prior, buffers), prior.config.layers
        self.rows, device = len(buffers.position), buffers.codes.device
        self._mail = torch.zeros(launcher.mail_words, dtype=torch.int64, device=device)
        # In the host's memory: it is read after every request and written by a launch that went wrong only.
        self._failed = torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=device.type == "cuda")
        self._arguments = self._fill(prior, buffers)

    def _fill(self, prior: Transformer, buffers: StepBuffers) -> Any:
        norm = prior.embedding_norm
        tensors = {
            "tokens": prior.tokens.weight, "positions": prior.positions.weight, "embedding_norm": norm.weight,
            "embedding_norm_bias": norm.bias, "keys": buffers.keys, "values": buffers.values, "codes": buffers.codes,
            "position": buffers.position, "request": buffers.request, "temperature": buffers.temperature, "mail": self._mail,
            "failed": self._failed,
        }  # fmt: skip
        layers = [
            _pointer(tensor)
            for block in prior.block_list()
            for tensor in (t for name in _LAYER for t in (getattr(block, name).weight, getattr(block, name).bias))
        ]
        arguments = _arguments_type(self._layers)(eps=norm.eps, epoch=0, steps=0)
        arguments.layers[:] = layers
        for name in _POINTERS:
            setattr(arguments, name, _pointer(tensors[name]))
        return arguments

    def launch(self, steps: int) -> None:
        """Queue steps of all active rows."""
        self._arguments.steps = steps
        self._launcher.launch(self._arguments)
        # Every message of a launch has an epoch that no earlier one had, so the mail need not be cleared.
        self._arguments.epoch = (self._arguments.epoch + steps * self._layers) % _EPOCHS

    @property
    def has_failed(self) -> bool:
        """Whether a launch has given up waiting. Only known when the device has finished."""
        return bool(self._failed.item())


@lru_cache(maxsize=32)
def _arguments_type(layers: int) -> type[ctypes.Structure]:
    class Arguments(ctypes.Structure):
        _fields_ = (
            ("layers", ctypes.c_void_p * (2 * len(_LAYER) * layers)),
            *((name, ctypes.c_void_p) for name in _POINTERS),
            ("eps", ctypes.c_float),
            ("epoch", ctypes.c_uint32),
            ("steps", ctypes.c_int),
        )

    return Arguments


def _pointer(tensor: Tensor) -> int:
    """Return the address of a tensor that the kernel reads as one row of elements after the other."""
    if not tensor.is_contiguous() or tensor.data_ptr() % 16:
        raise KernelError("a tensor is not contiguous or not aligned")
    return tensor.data_ptr()
