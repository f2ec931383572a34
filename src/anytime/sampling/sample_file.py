"""Samples as .npz files, with the fields of `Sample` under the same names."""

from __future__ import annotations

import io
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped

from anytime.core.config import from_dict, parse_json
from anytime.core.errors import UserError, reason
from anytime.core.files import LimitedReader, TooLargeError, open_regular
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.sample import Sample

UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
    NotImplementedError, struct.error, SyntaxError, tokenize.TokenError, lzma.LZMAError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy, json, zipfile and torch raise for contents that are not a sample's."""
MAX_BYTES = 3 << 28
"""Bytes of all arrays of a file that is read: 768 MiB, or 65,000 samples of CIFAR-10."""
MAX_COMPRESSED = 1 << 27
"""Bytes of a compressed array once it is unpacked: 128 MiB. Our own files are not compressed."""


def npz_bytes(sample: Sample, rows: slice = slice(None)) -> bytes:
    """Return a sample, or some of its rows, as an .npz file."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        data=sample.data[rows].cpu().numpy(),
        codes=sample.codes[rows].cpu().numpy(),
        rows=sample.rows[rows].numpy(),
        seconds=np.float64(sample.seconds),
        seed=np.uint64(sample.seed),
        settings=np.array(json.dumps(asdict(sample.settings))),
        model=np.array(sample.model),
    )
    return buffer.getvalue()


def read_npz(file: Path | io.BytesIO, name: str) -> Sample:
    """Read a sample; `name` says in errors where it came from."""
    try:
        with open_regular(file) if isinstance(file, Path) else nullcontext(file) as stream, zipfile.ZipFile(stream) as archive:
            sample = _read_sample(_Arrays(archive), name)
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(
            f"{name} is not an .npz file of samples ({reason(error)}); make one with `anytime sample --out FILE.npz`"
        ) from None
    data, codes, rows = sample.data, sample.codes, sample.rows
    if any(tensor.is_floating_point() or tensor.is_complex() for tensor in (codes, rows)):
        raise UserError(f"{name} has codes or rows that are not integers; make it again with `anytime sample --out FILE.npz`")
    if codes.ndim != 2 or rows.ndim != 1 or data.ndim < 2 or not len(data) == len(codes) == len(rows):
        raise UserError(f"{name} has fields of different lengths; make it again with `anytime sample --out FILE.npz`")
    return sample


class _Arrays:
    """The arrays of an .npz file, of `MAX_BYTES` in all. Arrays of Python objects, which are pickled, are refused."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._left = archive, MAX_BYTES

    def __getitem__(self, name: str) -> Shaped[np.ndarray, "..."]:
        info = self._archive.getinfo(f"{name}.npy")
        most = self._left if info.compress_type == zipfile.ZIP_STORED else min(self._left, MAX_COMPRESSED)
        if info.file_size > most:
            raise TooLargeError(most)
        with self._archive.open(info) as member:
            array: Shaped[np.ndarray, "..."] = np.lib.format.read_array(LimitedReader(member, self._left), allow_pickle=False)
        self._left -= array.nbytes
        return array

    def scalar(self, name: str, kinds: str) -> Shaped[np.ndarray, ""]:
        """Return a single value whose type is one of these kinds of numpy."""
        value = self[name]
        if value.ndim or value.dtype.kind not in kinds:
            raise ValueError(f"its {name} is not a single value")
        return value


def _read_sample(arrays: _Arrays, name: str) -> Sample:
    settings = from_dict(SamplingSettings, parse_json(str(arrays.scalar("settings", "U"))), f"{name}: settings")
    seconds, seed = float(arrays.scalar("seconds", "f")), int(arrays.scalar("seed", "iu"))
    if not seconds >= 0:  # NaN is refused too
        raise ValueError("its seconds are not at least 0")
    data, codes, rows = (torch.from_numpy(arrays[field]) for field in ("data", "codes", "rows"))
    return Sample(data, codes, seconds, seed, rows, settings, str(arrays.scalar("model", "U")))
