"""CIFAR-10 as published (pickled batches, in a folder or a tar file), or as one `cifar10.npz`."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.data.dataset import Dataset, ReadOptions, with_random_validation

FOLDER, ARCHIVE, ARRAYS = "cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar10.npz"
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def read_cifar10(options: ReadOptions) -> Dataset:
    """Read CIFAR-10 from the first of the three forms that is present."""
    root = options.root.parent if options.root.name == FOLDER else options.root
    readers: dict[str, Callable[[Path], tuple[Tensor, Tensor]]] = {FOLDER: _folder, ARCHIVE: _archive, ARRAYS: _arrays}
    for form, read in readers.items():
        if (root / form).exists():
            source = f"CIFAR-10, all pixels as published, from {form}"
            return with_random_validation(options.name, *read(root / form), source)
    raise UserError(f"{root} lacks {FOLDER}/, {ARCHIVE} and {ARRAYS}: point `data` at a folder that holds one")


def _folder(path: Path) -> tuple[Tensor, Tensor]:
    found = {name: path / name for name in BATCHES}
    return _batches({name: file.read_bytes() for name, file in found.items() if file.is_file()}, path)


def _archive(path: Path) -> tuple[Tensor, Tensor]:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:  # in order: seeking back in a compressed file decompresses it again
                if (stream := archive.extractfile(member)) is not None:
                    contents[Path(member.name).name] = stream.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole tar file ({error}): download it again") from error
    return _batches(contents, path)


def _batches(contents: dict[str, bytes], path: Path) -> tuple[Tensor, Tensor]:
    missing = [name for name in BATCHES if name not in contents]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}: download it again")
    batches = [read_batch(contents[name], path / name) for name in BATCHES]
    *train, test = (torch.from_numpy(batch.reshape(-1, 3, 32, 32).copy()) for batch in batches)
    return torch.cat(train), test


def _arrays(path: Path) -> tuple[Tensor, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            parts = [arrays[key] for key in ("x_train", "x_test")]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} does not hold whole arrays x_train and x_test ({error}): replace it") from error
    for part in parts:
        if part.dtype != np.uint8 or part.ndim != 4 or part.shape[1:] != (32, 32, 3):
            raise UserError(f"{path} holds {part.dtype} {part.shape} where uint8 [n, 32, 32, 3] is expected: replace it")
    train, test = (torch.from_numpy(part).permute(0, 3, 1, 2).contiguous() for part in parts)
    return train, test


def read_batch(content: bytes, path: Path) -> UInt8[np.ndarray, "n 3072"]:
    """Return the pixels of one pickled batch."""
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except UserError as error:
        raise UserError(f"{path} {error}") from None
    except Exception as error:  # broken pickles raise anything: EOFError, KeyError, IndexError, UnicodeDecodeError, ...
        raise UserError(f"{path} is not a whole CIFAR-10 batch ({error}): download it again") from error
    data = batch.get(b"data", batch.get("data")) if isinstance(batch, dict) else None
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise UserError(f"{path} holds no uint8 array [n, 3072] under 'data': download it again")
    return data


def _latin1(text: str, encoding: str) -> bytes:
    """Replace `_codecs.encode`, which pickled bytes call, and refuse every codec but latin1."""
    if encoding != "latin1":
        raise UserError(f"asks for the codec {encoding!r}, which no CIFAR-10 batch does: do not trust it, download it again")
    return text.encode("latin1")


# The functions that rebuild an array, up to pickle protocol 4 and in 5; their module depends on the version of numpy.
_RECONSTRUCT, _FROM_BUFFER = np.zeros(1).__reduce_ex__(4)[0], np.zeros(1).__reduce_ex__(5)[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _FROM_BUFFER for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that allows numpy arrays in plain containers and no other function calls."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise UserError(f"asks to run {module}.{name}, which no CIFAR-10 batch does: do not trust it, download it again")
        return _ALLOWED[module, name]
