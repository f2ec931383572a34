"""Shards as bytes: an .npz file with the fields of `Sample`, or a tar file as webdataset reads it.

The bytes of a shard depend on the request and its number alone: rows are computed in fixed blocks by one thread, and files
have no times, owners or measurements in them.
"""

from __future__ import annotations

import io
import json
import tarfile
import threading

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.bulk.request import BulkRequest
from anytime.core.errors import UserError
from anytime.data.audio_io import wav_bytes
from anytime.data.image_grid import grid, png_bytes
from anytime.model import AnytimeModel
from anytime.sampling.budget import Budget
from anytime.sampling.engines.base import Request
from anytime.sampling.sample import Sample
from anytime.sampling.sample_file import npz_bytes
from anytime.sampling.threads import use_threads

THREADS = 1
"""CPU threads of a process. Fixed: another number may add in another order, which changes the last digits."""


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """The caller's event was set. Nothing is half-written."""


def make_shard(model: AnytimeModel, request: BulkRequest, index: int, stop: threading.Event | None = None) -> bytes:
    """Return the content of a shard; raise `Stopped` as soon as `stop` is set."""
    rows = request.rows(index)
    with use_threads(THREADS):
        blocks = [sample_block(model, request, first, stop) for first in rows[:: request.block]]
    data, codes = (torch.cat(parts)[: len(rows)] for parts in zip(*blocks, strict=True))
    numbers = torch.arange(rows.start, rows.stop, device="cpu")
    sample = Sample(data, codes, 0.0, request.seed, numbers, request.settings, request.model)  # 0.0: no measurement
    return npz_bytes(sample) if request.shards == "npz" else tar_bytes(sample)


def sample_block(
    model: AnytimeModel, request: BulkRequest, first: int, stop: threading.Event | None
) -> tuple[Float[Tensor, "block ..."], Int[Tensor, "block codes"]]:
    """Return the data and codes of a full block, whether or not all its rows are asked for: no row depends on their number."""
    if (block := model.engine.block) < request.block:
        raise UserError(f"this device computes {block} rows at once and the request needs {request.block}; use another")
    rows = torch.arange(first, first + request.block, device="cpu")
    prefix = torch.tensor([request.prefix], dtype=torch.long, device="cpu").expand(request.block, -1)
    session = model.sampler.session(Request(prefix, rows, request.seed, request.settings, request.model))
    sample = session.run(Budget(codes=request.codes, stop=stop))
    if stop is not None and stop.is_set():
        raise Stopped
    return sample.data.cpu(), sample.codes.cpu()


def tar_bytes(sample: Sample) -> bytes:
    """Return a tar file with a PNG or WAV file and a JSON file (row, seed, codes) for each sample, named by its row."""
    is_audio, buffer = sample.data.ndim == 3, io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for row, x, codes in zip(sample.rows.tolist(), sample.data, sample.codes.tolist(), strict=True):
            media = wav_bytes(x) if is_audio else png_bytes(grid(x[None], gap=0))
            _add(archive, f"{row:010d}.{'wav' if is_audio else 'png'}", media)
            _add(archive, f"{row:010d}.json", json.dumps({"row": row, "seed": sample.seed, "codes": codes}).encode())
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)  # its default time, owner and mode are the same everywhere
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
