"""Compile CUDA C++ while the program runs, with NVRTC: a library of the CUDA toolkit that comes with torch's CUDA wheels.

No compiler needs to be installed. The library is called through ctypes, as torch has no public function for it.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch

from anytime.core.errors import reason

MIN_VERSION = 12
"""The first major version of CUDA that knows all instructions of our kernels."""


class KernelError(RuntimeError):
    """A kernel cannot be compiled or launched here. The message is the reason, without a full stop."""


def compile_cubin(source: str, name: str, capability: tuple[int, int], macros: Mapping[str, int]) -> bytes:
    """Return the machine code of a source for GPUs of a compute capability."""
    nvrtc = load_nvrtc()
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17", "--fmad=true"]
    options += [f"-D{macro}={value}" for macro, value in macros.items()]
    encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    program = ctypes.c_void_p()
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None), "")
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), encoded)
        _check(nvrtc, status, _first_error(_read(nvrtc, program, "ProgramLog").decode(errors="replace")) if status else "")
        return _read(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache(maxsize=1)
def load_nvrtc() -> ctypes.CDLL:
    """Return the library, of torch's own CUDA version if there are several."""
    for path in _candidates():
        with suppress(OSError):
            library = ctypes.CDLL(str(path))
            library.nvrtcGetErrorString.restype = ctypes.c_char_p
            major, minor = ctypes.c_int(), ctypes.c_int()
            if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0 and major.value >= MIN_VERSION:
                return library
    raise KernelError(f"NVRTC {MIN_VERSION} or newer is not installed")


def _candidates() -> Iterator[Path | str]:
    """Yield where the library may be: loaded already or on the library path, in NVIDIA's wheels, in torch's own."""
    majors = [] if torch.version.cuda is None else [torch.version.cuda.partition(".")[0]]
    majors += [major for major in ("13", "12") if major not in majors]
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    for major in majors:
        yield f"libnvrtc.so.{major}"
        for place in places:
            yield from sorted(place.glob(f"*/lib/libnvrtc.so.{major}"))
            yield from sorted(place.glob(f"*/bin/**/nvrtc64_{major}*_0.dll"))
    yield from sorted((Path(torch.__file__).parent / "lib").glob("libnvrtc-*.so*"))


def _read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """Return the log or the code of a program."""
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    buffer = ctypes.create_string_buffer(max(1, size.value))
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer), what)
    return buffer.raw[: size.value]


def _first_error(log: str) -> str:
    """Return the first error of a compiler's log.

    >>> _first_error("kernel.cu(3): warning: unused\\nkernel.cu(7): error: static assertion failed with \\"blocks\\"\\n")
    'static assertion failed with "blocks"'
    """
    errors = [line.partition("error: ")[2] for line in log.splitlines() if "error: " in line]
    return errors[0] if errors else log.strip(" \n\0")


def _check(nvrtc: ctypes.CDLL, status: int, detail: str) -> None:
    if status:
        meaning = nvrtc.nvrtcGetErrorString(status).decode()
        raise KernelError(reason(RuntimeError(f"NVRTC reports {meaning}: {detail}" if detail else f"NVRTC reports {meaning}")))
