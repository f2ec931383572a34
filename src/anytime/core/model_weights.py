"""The weights of a saved model, refused by the header of their file if they are not those of its config."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode

from anytime.core import quantized_weights, storage
from anytime.core.errors import UserError
from anytime.core.quantized_weights import SCALE_PREFIX
from anytime.core.storage import TensorInfo

MAX_TENSORS = 4096
"""Tensors of a model; ours have a few hundred."""
_RANDOM = (Tensor.uniform_, Tensor.normal_)


class WithoutInitialisation(TorchFunctionMode):
    """Leaves the weights of new modules as they are in memory: those of a file will replace them.

    Random numbers for them would take a fifth of the time of loading a model. On the meta device `nn.init.normal_` does
    nothing, but imports torch's compiler, which takes about a second.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _RANDOM or getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))


class _TooManyTensorsError(Exception):
    """A config of more layers than the file has tensors."""


def read_weights(path: Path, build: Callable[[], nn.Module]) -> tuple[dict[str, Tensor], str]:
    """Read the weights of the module that `build` returns, and their digest; quantised ones become float32.

    Weights of other names, types or sizes are refused before memory is allocated for them, and so are NaN and infinity.
    """

    def check(header: storage.Header) -> None:
        found = header.tensors
        if header.metadata.get("kind") == quantized_weights.FILE_KIND:
            found = _dequantized(found)
        if not found or found != _expected(build, len(header.tensors)):
            raise UserError(f"{path} does not fit its config.json; restore both files")

    tensors, metadata, digest = storage.read_tensors(path, check)
    if metadata.get("kind") == quantized_weights.FILE_KIND:
        tensors = quantized_weights.dequantize_weights(tensors)
        digest = storage.digest(tensors)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UserError(f"{path} has NaN or infinite weights in {name}; train the model again")
    return tensors, digest


def _dequantized(found: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Return what quantised tensors become; none if a scale is missing, superfluous or of a wrong size."""
    weights = {name: info for name, info in found.items() if not name.startswith(SCALE_PREFIX)}
    scales = {name.removeprefix(SCALE_PREFIX): info for name, info in found.items() if name not in weights}
    int8 = {name: TensorInfo(info.shape[:1], torch.float32) for name, info in weights.items() if info.dtype == torch.int8}
    if scales != int8:
        return {}
    quantised = (torch.int8, torch.bfloat16)
    return {
        name: TensorInfo(info.shape, torch.float32 if info.dtype in quantised else info.dtype) for name, info in weights.items()
    }


def _expected(build: Callable[[], nn.Module], most: int) -> dict[str, TensorInfo]:
    """Return the tensors of a module, without memory for them; none if it has many more than `most`."""
    if most > MAX_TENSORS:
        return {}
    try:
        with _at_most(2 * most + 64), torch.device("meta"), WithoutInitialisation():  # buffers need not be saved
            module = build()
        return {name: TensorInfo(tuple(tensor.shape), tensor.dtype) for name, tensor in module.state_dict().items()}
    except (RuntimeError, OverflowError, TypeError, ArithmeticError, MemoryError, _TooManyTensorsError):
        return {}  # sizes that torch cannot count


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    """Raise an error in this thread when a module gets more than `count` parameters and buffers in all."""
    thread, registered = threading.get_ident(), 0

    def register(module: nn.Module, name: str, value: Tensor | None) -> None:
        nonlocal registered
        registered += threading.get_ident() == thread
        if registered > count:
            raise _TooManyTensorsError

    parameters = torch_module.register_module_parameter_registration_hook(register)
    buffers = torch_module.register_module_buffer_registration_hook(register)
    try:
        yield
    finally:
        parameters.remove()
        buffers.remove()
