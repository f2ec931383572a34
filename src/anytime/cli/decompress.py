"""anytime decompress FILES... OUT"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from anytime.cli.options import Common, option
from anytime.cli.signals import raise_on_signals
from anytime.cli.stdout import say
from anytime.core.errors import UserError

if TYPE_CHECKING:
    from anytime.cli.paths import Conversion
    from anytime.compression import Compressor

READS, SUFFIX = (".any",), ".png"
EXAMPLES = (
    "anytime sample cifar10 -n 1 --out photos",
    "anytime compress photos/x-0000.png photo.any",
    "anytime decompress photo.any photo.png",
    "anytime decompress photo.any coarse.png --codes 4",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime decompress`."""

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, option("PATHS")]
    """Compressed files, whole or cut at any byte, then the PNG file to write. With several files it is a directory."""
    model: Annotated[str | None, option("MODEL")] = None
    """The model that compressed them; by default the bundled model whose hash is in the file."""
    codes: Annotated[int | None, option("N")] = None
    """Decode the first N codes at most; by default all that the file determines."""


def run(arguments: Arguments) -> dict[str, Any]:
    """Decompress every file and print its number of codes."""
    with raise_on_signals():
        return _run(arguments)


def _run(arguments: Arguments) -> dict[str, Any]:
    from anytime.cli.paths import plan_conversions

    jobs = plan_conversions(arguments.paths, READS, SUFFIX, "decompress")
    if jobs[0].out.suffix.lower() != SUFFIX:
        raise UserError(f"{jobs[0].out} must end in {SUFFIX}; decompress writes PNG files")
    rows = []
    for done in _decompress(arguments, jobs):
        rows.append({"file": str(done.job.file), "out": str(done.job.out), "codes": done.codes})
        say(f"{done.job.out}  {len(done.codes)} of {done.length} codes")
    return {"files": rows}


@dataclass(frozen=True, slots=True)
class Done:
    """A file that has been decompressed."""

    job: Conversion
    codes: list[int]
    length: int  # full number of codes of its model


def _decompress(arguments: Arguments, jobs: list[Conversion]) -> Iterator[Done]:
    """Write the images, model by model; every file is checked before any image is written."""
    from anytime.core.storage import remove_partials

    groups = _by_model(arguments, jobs)
    compressors = [_compressor(name, files, arguments) for name, files in groups.items()]
    remove_partials(jobs[0].out.parent)
    for compressor, files in zip(compressors, groups.values(), strict=True):
        yield from _write(compressor, files, arguments.codes)


def _by_model(arguments: Arguments, jobs: list[Conversion]) -> dict[str, dict[Conversion, bytes]]:
    """Read the files; return them by the name of their model."""
    from anytime.compression.file_format import MAX_BYTES, find_bundled_model, unpack
    from anytime.data.files import local_file

    groups: dict[str, dict[Conversion, bytes]] = {}
    for job in jobs:
        data = local_file(job.file).head(MAX_BYTES)
        file = unpack(data, str(job.file))
        name = arguments.model or find_bundled_model(file, str(job.file))
        groups.setdefault(name, {})[job] = data
    return groups


def _compressor(name: str, files: dict[Conversion, bytes], arguments: Arguments) -> Compressor:
    """Load a model; refuse files of another one."""
    from anytime.compression import Compressor
    from anytime.compression.file_format import check_model, unpack
    from anytime.model import load

    model = load(name, arguments.device)
    if model.is_audio:
        raise UserError(f"--model {name} is a model of audio; decompress takes a model of images")
    model.code_count(arguments.codes)
    for job, data in files.items():
        check_model(unpack(data), model.hash, str(job.file))
    return Compressor(model)


def _write(compressor: Compressor, files: dict[Conversion, bytes], codes: int | None) -> Iterator[Done]:
    """Decompress the files of one model in batches."""
    from anytime.compression.progressive import BATCH
    from anytime.core.progress import track
    from anytime.data.image_grid import grid, write_png

    jobs, starts = list(files), range(0, len(files), BATCH)
    for start in track(starts, len(starts), "decompressing"):
        part = jobs[start : start + BATCH]
        for job, image in zip(part, compressor.decompress([files[job] for job in part], codes), strict=True):
            write_png(job.out, grid(image.data, gap=0))
            yield Done(job, image.codes[0].tolist(), compressor.model.length)
