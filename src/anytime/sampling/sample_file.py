"""Samples as .npz files, with the fields of `Sample` under the same names."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from anytime.core.config import from_dict
from anytime.core.errors import UserError
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.sample import Sample

UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, OverflowError, RecursionError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy, json, zipfile and torch raise for contents that are not a sample's."""


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
        if isinstance(file, Path) and file.is_file() and not zipfile.is_zipfile(file):  # numpy would suggest to unpickle it
            raise ValueError("not a zip file")
        with np.load(file, allow_pickle=False) as arrays:
            settings = from_dict(SamplingSettings, json.loads(str(arrays["settings"])), f"{name}: settings")
            data, codes, rows = (torch.from_numpy(arrays[field]) for field in ("data", "codes", "rows"))
            sample = Sample(data, codes, float(arrays["seconds"]), int(arrays["seed"]), rows, settings, str(arrays["model"]))
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(
            f"{name} is not an .npz file of samples ({error}); make one with `anytime sample --out FILE.npz`"
        ) from None
    if any(tensor.is_floating_point() or tensor.is_complex() for tensor in (codes, rows)):
        raise UserError(f"{name} has codes or rows that are not integers; make it again with `anytime sample --out FILE.npz`")
    if codes.ndim != 2 or rows.ndim != 1 or data.ndim < 2 or not len(data) == len(codes) == len(rows):
        raise UserError(f"{name} has fields of different lengths; make it again with `anytime sample --out FILE.npz`")
    return sample
