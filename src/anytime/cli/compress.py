"""anytime compress FILES... OUT"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from anytime.cli.options import Common, option
from anytime.cli.signals import raise_on_signals
from anytime.cli.stdout import say
from anytime.core.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from torch import Tensor

    from anytime.cli.paths import Conversion
    from anytime.model import AnytimeModel

SUFFIX = ".any"
EXAMPLES = (
    "anytime sample cifar10 -n 2 --out photos",
    "anytime compress photos/x-0000.png photo.any",
    "anytime compress photos compressed --model cifar10",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime compress`."""

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, option("PATHS")]
    """Images, or directories of images, then the file to write. With several images it is a directory: one file each."""
    model: Annotated[str, option("MODEL")] = "cifar10"
    """A run directory, the directory of a saved model, or the name of a bundled model. The file needs it to be read."""
    resize: Annotated[bool, option()] = False
    """Crop images at the centre, resize them and convert their colours as the model needs. Others are refused by default."""


def run(arguments: Arguments) -> dict[str, Any]:
    """Compress every image and print its size."""
    with raise_on_signals():
        return _run(arguments)


def _run(arguments: Arguments) -> dict[str, Any]:
    import torch

    from anytime.cli.paths import plan_conversions
    from anytime.data.image_io import SUFFIXES
    from anytime.model import load

    jobs = plan_conversions(arguments.paths, SUFFIXES, SUFFIX, "compress")
    if jobs[0].out.suffix.lower() in SUFFIXES:
        raise UserError(f"{jobs[0].out} has the suffix of an image; name the compressed file with {SUFFIX}")
    model = load(arguments.model, arguments.device)
    if model.is_audio:
        raise UserError(f"--model {arguments.model} is a model of audio; compress takes a model of images")
    images = torch.stack([_read(job.file, model, arguments.resize) for job in jobs])  # all are readable before any is written
    rows = _compress(jobs, images, model)
    return {"model": model.hash, "files": rows}


def _read(path: Path, model: AnytimeModel, resize: bool) -> UInt8[Tensor, "channel height width"]:
    """Read an image; refuse several in one file and, without `resize`, another size or mode."""
    from anytime.data.files import local_file
    from anytime.data.image_io import has_several_frames, read_image, size_and_mode

    if has_several_frames(local_file(path)):
        raise UserError(f"{path} holds several images; compress takes one image a file, so save its frames or pages as files")
    channels, height, *_ = shape = model.config.autoencoder.shape
    found, expected = size_and_mode(local_file(path)), (shape[-1], height, "L" if channels == 1 else "RGB")
    if found != expected and not resize:
        has, takes = (f"{wide} × {tall} pixels in mode {mode}" for wide, tall, mode in (found, expected))
        raise UserError(f"{path} has {has}, the model takes {takes}; add --resize to crop, resize and convert it")
    return read_image(path, channels, height)


def _compress(jobs: list[Conversion], images: UInt8[Tensor, "n channel height width"], model: AnytimeModel) -> list[Any]:
    """Write one file after the other; an interrupted command leaves whole files only."""
    from anytime.compression import Compressor
    from anytime.compression.progressive import BATCH
    from anytime.core.progress import track
    from anytime.core.storage import remove_partials, write_atomic

    compressor, rows = Compressor(model), list[dict[str, Any]]()
    remove_partials(jobs[0].out.parent)
    starts = range(0, len(jobs), BATCH)
    for start in track(starts, len(starts), "compressing"):
        files = compressor.compress(images[start : start + BATCH])
        for job, data in zip(jobs[start : start + BATCH], files, strict=True):
            write_atomic(job.out, data)
            rows.append({"file": str(job.file), "out": str(job.out), "bytes": len(data)})
            say(f"{job.out}  {len(data)} bytes")
    return rows
