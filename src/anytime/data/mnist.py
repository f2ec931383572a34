"""MNIST and Fashion-MNIST in the idx format: a magic number, big-endian dimensions, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from anytime.core.errors import UserError, printable, reason
from anytime.core.files import open_regular
from anytime.data.dataset import Dataset, ReadOptions, check_counts, with_random_validation

IMAGES = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")
LABELS = ("train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte")
MAX_ELEMENTS = 1 << 27
"""The most elements of an array that is read: MNIST's largest has 47 million."""


def read_mnist(options: ReadOptions) -> Dataset:
    """Read the published images of MNIST or Fashion-MNIST."""
    paths = find_idx(options.root, IMAGES)
    train, test = (torch.from_numpy(read_idx(path, 3).copy()).unsqueeze(1) for path in paths)
    check_counts(options.root, len(train), len(test))
    return with_random_validation(options.name, train, test, f"{options.name}, all pixels as published")


def read_mnist_labels(root: Path) -> tuple[UInt8[np.ndarray, " train"], UInt8[np.ndarray, " test"]]:
    """Read the published labels of the training and the test set."""
    train, test = (read_idx(path, 1) for path in find_idx(root, LABELS))
    check_counts(root, len(train), len(test))
    return train, test


def find_idx(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """Find the named files, plain or gzipped, spelled with `-idx` or `.idx`."""
    found: dict[str, Path] = {}
    for name in names:
        for spelling in (f"{stem}{ending}" for ending in ("", ".gz") for stem in (name, name.replace("-idx", ".idx"))):
            if (folder / spelling).is_file():
                found.setdefault(name, folder / spelling)
    if missing := [name for name in names if name not in found]:
        raise UserError(f"{folder} lacks {' and '.join(missing)} (plain or .gz): point `data` at the folder that holds them")
    return list(found.values())


def read_idx(path: Path, dimensions: int) -> UInt8[np.ndarray, "*shape"]:
    """Read the array of one file, which must hold bytes in `dimensions` dimensions and nothing else."""
    try:
        array, rest = parse_idx(_read_idx_bytes(path, dimensions), dimensions)
        if rest:
            raise ValueError("bytes follow its last element")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        name = printable(str(path))
        raise UserError(f"{name} is not a whole idx file ({reason(error)}): replace it with the published one") from error
    return array


def _read_idx_bytes(path: Path, dimensions: int) -> bytes:
    """Return the bytes of an array and at most one more, so that a small compressed file cannot fill the memory."""
    with ExitStack() as stack:
        stream = stack.enter_context(open_regular(path))
        source = stack.enter_context(gzip.open(stream)) if path.suffix == ".gz" else stream
        header = source.read(4 + 4 * dimensions)
        count = math.prod(_idx_shape(header, dimensions))
        if count > MAX_ELEMENTS:
            raise ValueError(f"it has {count:,} elements, more than {MAX_ELEMENTS:,}")
        return header + source.read(count + 1)


def parse_idx(content: bytes, dimensions: int) -> tuple[UInt8[np.ndarray, "*shape"], bytes]:
    """Return the array at the start of `content` and the bytes after it; a ValueError says what is wrong."""
    start, shape = 4 + 4 * dimensions, _idx_shape(content, dimensions)
    end = start + math.prod(shape)
    if len(content) < end:
        raise ValueError(f"{end - len(content):,} bytes of {end:,} are missing")
    return np.frombuffer(content, np.uint8, end - start, start).reshape(shape), content[end:]


def _idx_shape(content: bytes, dimensions: int) -> tuple[int, ...]:
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):  # 8: unsigned bytes
        raise ValueError(f"no magic number of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if 0 in shape:
        raise ValueError("it is empty")
    return shape


def to_idx(array: UInt8[np.ndarray, "*shape"]) -> bytes:
    """Encode an array in the idx format."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
