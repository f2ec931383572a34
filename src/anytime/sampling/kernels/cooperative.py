"""Cooperative launches: all blocks of a kernel run at the same time, so they may wait for each other.

The kernel is loaded and launched through the CUDA driver's own functions, which torch has loaded already.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

from anytime.core.errors import reason
from anytime.sampling.kernels.nvrtc import KernelError

# Numbers of the driver's interface.
DEVICE_COOPERATIVE_LAUNCH, DEVICE_SHARED_MEMORY, FUNCTION_DYNAMIC_SHARED_MEMORY = 95, 97, 8

Pointer = ctypes.c_void_p


@lru_cache(maxsize=1)
def _load_driver() -> ctypes.CDLL:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise KernelError(f"the CUDA driver cannot be loaded: {reason(error)}") from None


def _call(name: str, *arguments: object) -> None:
    """Call a function of the driver."""
    driver = _load_driver()
    status = getattr(driver, name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        raise KernelError(f"{name} reports {text.value.decode() if text.value else f'error {status}'}")


class CooperativeKernel:
    """A loaded kernel with a fixed grid. The module has another kernel, `layout`, that reports what a launch needs."""

    def __init__(self, cubin: bytes, name: str, device: torch.device, *, blocks: int, threads: int) -> None:
        self.blocks, self.threads, self.device = blocks, threads, device
        self._context, self._module, self._function = Pointer(), Pointer(), Pointer()
        handle = ctypes.c_int()
        ordinal = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.synchronize(device)  # makes sure that the device is initialised
        _call("cuDeviceGet", ctypes.byref(handle), ordinal)
        if not _attribute(DEVICE_COOPERATIVE_LAUNCH, handle):
            raise KernelError("the driver or the GPU has no cooperative launch")
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)
        with self._current():
            _call("cuModuleLoadData", ctypes.byref(self._module), cubin)
            _call("cuModuleGetFunction", ctypes.byref(self._function), self._module, name.encode())
            self.shared_bytes, self.mail_words = self._layout()
            self._prepare(handle)

    def _layout(self) -> tuple[int, int]:
        function, needed = Pointer(), torch.zeros(2, dtype=torch.int32, device=self.device)
        _call("cuModuleGetFunction", ctypes.byref(function), self._module, b"layout")
        parameters = (Pointer * 1)(ctypes.cast(ctypes.pointer(Pointer(needed.data_ptr())), Pointer))
        _call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, self._stream(), parameters, None)
        bytes_, words = needed.tolist()
        return bytes_, words

    def _prepare(self, handle: ctypes.c_int) -> None:
        """Ask for the shared memory, and check that all blocks can run at once."""
        most = _attribute(DEVICE_SHARED_MEMORY, handle)
        if self.shared_bytes > most:
            raise KernelError(f"a block needs {self.shared_bytes:,} bytes of shared memory, and this GPU has {most:,}")
        _call("cuFuncSetAttribute", self._function, FUNCTION_DYNAMIC_SHARED_MEMORY, self.shared_bytes)
        per_processor = ctypes.c_int()
        size = ctypes.c_size_t(self.shared_bytes)
        _call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(per_processor), self._function, self.threads, size)
        resident = per_processor.value * torch.cuda.get_device_properties(self.device).multi_processor_count
        if resident < self.blocks:
            raise KernelError(f"{self.blocks} blocks must run at once, and this GPU runs {resident}")

    def launch(self, arguments: ctypes.Structure) -> None:
        """Queue the kernel on torch's current stream; the arguments are copied."""
        parameters = (Pointer * 1)(ctypes.cast(ctypes.pointer(arguments), Pointer))
        with self._current():
            _call(
                "cuLaunchCooperativeKernel", self._function, self.blocks, 1, 1, self.threads, 1, 1,
                self.shared_bytes, self._stream(), parameters,
            )  # fmt: skip

    def _stream(self) -> Pointer:
        return Pointer(torch.cuda.current_stream(self.device).cuda_stream)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make torch's context of the device current: a new thread has none."""
        _call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            _call("cuCtxPopCurrent_v2", ctypes.byref(Pointer()))


def _attribute(number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value
