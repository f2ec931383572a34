"""The megakernel on a CPU: `megakernel_emulator.cpp` around the kernel's own source, compiled by g++."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from torch import Tensor

from anytime.sampling.kernels.megakernel import SOURCE, Shape

EMULATOR = Path(__file__).with_name("megakernel_emulator.cpp")
REASON = (
    "the emulator needs g++"
    if shutil.which("g++") is None
    else "the emulator switches stacks as on x86-64"
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux"
    else ""
)
"""Why it cannot run here, or nothing."""
NO_BLOCK = -1


class _Range(ctypes.Structure):
    _fields_ = (("first", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


@cache
def compile_emulator(shape: Shape, folder: Path, patience: int) -> Path:
    library = folder / f"{abs(hash((shape, patience)))}.so"
    macros = {**shape.macros, "PATIENCE": patience, "SOURCE": f'"{SOURCE}"'}
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", *(f"-D{name}={value}" for name, value in macros.items())]
    subprocess.run(["g++", *options, "-o", str(library), str(EMULATOR)], check=True, timeout=120)
    return library


class Emulator:
    """Runs launches one after the other. Blocks run in turn, or in an order that `seed` shuffles.

    `readable` are the tensors that the kernel may read as vectors or as messages; if there are none, it is not checked.
    """

    def __init__(self, shape: Shape, folder: Path, *, patience: int = 1 << 30) -> None:
        self._library = ctypes.CDLL(str(compile_emulator(shape, folder, patience)))
        self.mail_words: int = self._library.mail_words()
        self.shared_bytes: int = self._library.shared_bytes()
        self.seed, self.silent_block = 0, NO_BLOCK
        self.readable: list[Tensor] = []
        self.launches: list[int] = []  # steps of each

    def launch(self, arguments: ctypes.Structure) -> None:
        ranges = [_Range(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in self.readable]
        allowed = (_Range * len(ranges))(*ranges)
        outside = self._library.run(ctypes.byref(arguments), allowed, len(ranges), self.seed, self.silent_block)
        assert outside == 0, "the kernel read outside of its tensors"
        self.launches.append(arguments.steps)  # type: ignore[attr-defined]
