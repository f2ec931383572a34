"""CIFAR-10 as published (pickled batches, in a folder or a tar file), or as one `cifar10.npz`."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from anytime.core.errors import UserError, reason
from anytime.core.files import LimitedReader, Readable, TooLargeError, open_regular, read_limited
from anytime.data.dataset import Dataset, ReadOptions, check_counts, with_random_validation
from anytime.data.pickled import read_pickled_array

FOLDER, ARCHIVE, ARRAYS = "cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar10.npz"
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_MAX_BATCH = 1 << 25  # bytes: a published batch has 31 million
_MAX_ARRAY = 160 << 20  # bytes: the training images have 154 million


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
    return _batches({name: read_limited(file, _MAX_BATCH) for name, file in found.items() if file.is_file()}, path)


def _archive(path: Path) -> tuple[Tensor, Tensor]:
    """Read the batches of the tar file one after the other; nothing is unpacked to disk and no link is followed."""
    contents: dict[str, bytes] = {}
    try:
        with open_regular(path) as stream, gzip.open(stream) as unpacked, _tar_stream(unpacked) as archive:
            for member in archive:
                if (name := PurePosixPath(member.name).name) in BATCHES and member.isreg() and not member.issparse():
                    contents[name] = _read_member(archive, member)
    except Exception as error:  # broken archives raise a dozen types: TarError, zlib.error, ValueError, RecursionError
        raise UserError(f"{path} is not a whole tar file ({reason(error)}): download it again") from error
    return _batches(contents, path)


def _tar_stream(unpacked: Readable) -> tarfile.TarFile:
    """Open a tar file as a stream: one that may be read backwards can lead to the same bytes for ever."""
    return tarfile.open(fileobj=cast("IO[bytes]", LimitedReader(unpacked)), mode="r|")


def _read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the content of a batch."""
    if member.size > _MAX_BATCH:
        raise TooLargeError(_MAX_BATCH)
    stream = archive.extractfile(member)
    return b"" if stream is None else stream.read()


def _batches(contents: dict[str, bytes], path: Path) -> tuple[Tensor, Tensor]:
    missing = [name for name in BATCHES if name not in contents]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}: download it again")
    batches = [read_batch(contents[name], path / name) for name in BATCHES]
    *train, test = (torch.from_numpy(batch.reshape(-1, 3, 32, 32).copy()) for batch in batches)
    return _checked(torch.cat(train), test, path)


def _arrays(path: Path) -> tuple[Tensor, Tensor]:
    try:
        parts = read_npz(path, ("x_train", "x_test"))
    except Exception as error:  # broken arrays raise a dozen types: BadZipFile, KeyError, zlib.error, MemoryError
        raise UserError(f"{path} does not hold whole arrays x_train and x_test ({reason(error)}): replace it") from error
    for part in parts:
        if part.dtype != np.uint8 or part.ndim != 4 or part.shape[1:] != (32, 32, 3):
            found = f"{part.dtype.name[:40]} {part.shape}"
            raise UserError(f"{path} holds {found} where uint8 [n, 32, 32, 3] is expected: replace it")
    train, test = (torch.from_numpy(part).permute(0, 3, 1, 2).contiguous() for part in parts)
    return _checked(train, test, path)


def read_npz(path: Path, names: Sequence[str]) -> list[Shaped[np.ndarray, "..."]]:
    """Return arrays of an .npz file, each of at most 160 MiB; arrays of objects, which are pickled, are refused."""
    with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
        return [_read_npy(archive, name) for name in names]


def _read_npy(archive: zipfile.ZipFile, name: str) -> Shaped[np.ndarray, "..."]:
    with archive.open(f"{name}.npy") as member:
        content = io.BytesIO(LimitedReader(member, _MAX_ARRAY).read())
    array: Shaped[np.ndarray, "..."] = np.lib.format.read_array(content, allow_pickle=False)
    return array


def _checked(train: Tensor, test: Tensor, path: Path) -> tuple[Tensor, Tensor]:
    check_counts(path, len(train), len(test))
    return train, test


def read_batch(content: bytes, path: Path) -> UInt8[np.ndarray, "n 3072"]:
    """Return the pixels of one pickled batch, which is interpreted and not unpickled."""
    try:
        data = read_pickled_array(content, "data")
    except UserError as error:
        raise UserError(f"{path} {error}") from None
    except Exception as error:  # broken pickles raise a dozen types: ValueError, KeyError, IndexError, UnicodeDecodeError
        raise UserError(f"{path} is not a whole CIFAR-10 batch ({reason(error)}): download it again") from error
    if data is None or data.ndim != 2 or data.shape[1] != 3072:
        raise UserError(f"{path} holds no uint8 array [n, 3072] under 'data': download it again")
    return data
