"""anytime reconstruct MODEL FILES..."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from anytime.cli.options import Common, Model, option
from anytime.cli.paths import expand, output_names
from anytime.cli.signals import raise_on_signals
from anytime.cli.stdout import say
from anytime.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float, Int16
    from torch import Tensor

    from anytime.data.audio_io import Loudness
    from anytime.model import AnytimeModel

CROPS_PER_BATCH = 64  # of audio; about a minute
EXAMPLES = ("anytime sample mnist -n 2 --out digits", "anytime reconstruct mnist digits/x-0000.png digits/x-0001.png --codes 4")


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime reconstruct`."""

    model: Model
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, option("FILES")]
    """Images, cropped at the centre and resized to the model's size; or audio files of any length, processed crop by crop.
    A directory stands for the files in it."""
    codes: Annotated[int | None, option("N")] = None
    """Decode the first N codes; all by default."""
    fraction: Annotated[float | None, option("F")] = None
    """Decode this fraction of the codes, above 0 and at most 1."""
    quality: Annotated[float | None, option("Q")] = None
    """Decode the fewest codes that reach this quality, by the quality table of `anytime evaluate`."""
    out: Annotated[Path, option("DIR")] = Path("reconstructions")
    """Directory for the reconstructions, one file of the same name each."""


def run(arguments: Arguments) -> dict[str, Any]:
    """Reconstruct every file and print its error."""
    with raise_on_signals():
        return _run(arguments)


def _run(arguments: Arguments) -> dict[str, Any]:
    from anytime.cli.output import check_out_dir
    from anytime.core.storage import remove_partials
    from anytime.data import audio_io, image_io
    from anytime.model import load

    if not arguments.files:
        raise UserError("reconstruct needs at least one image or audio file after the model")
    suffixes = image_io.SUFFIXES | audio_io.SUFFIXES
    arguments = replace(arguments, files=tuple(file for path in arguments.files for file in expand(path, suffixes)))
    check_out_dir(arguments.out)
    inputs = {path.resolve() for path in arguments.files}
    for name in (*output_names(arguments.files, ".png"), *output_names(arguments.files, ".wav")):
        if (arguments.out / name).resolve() in inputs:
            raise UserError(f"{arguments.out / name} would be replaced by its reconstruction; choose another --out")
    model = load(arguments.model, arguments.device)
    count = model.code_count(arguments.codes, arguments.fraction, arguments.quality)
    remove_partials(arguments.out)
    rows, reconstruct = [], _reconstruct_audio if model.is_audio else _reconstruct_images
    for result in reconstruct(arguments, model, count):
        rows.append({"file": str(result.file), "out": str(result.out), "codes": result.codes, "error": result.error})
        say(f"{result.out}  mean squared error {result.error:.5f} from {count} of {model.length} codes{result.note}")
    return {"files": rows}


@dataclass(frozen=True, slots=True)
class Result:
    """The reconstruction of one file."""

    file: Path
    out: Path
    codes: list[int] | list[list[int]]  # of audio, one list for each crop
    error: float
    note: str = ""


def _reconstruct_images(arguments: Arguments, model: AnytimeModel, count: int) -> Iterator[Result]:
    import torch

    from anytime.data.image_grid import grid, write_png
    from anytime.data.image_io import read_image
    from anytime.data.loader import to_float

    channels, height, *_ = model.config.autoencoder.shape
    x = torch.stack([to_float(read_image(path, channels, height)) for path in arguments.files])
    codes = model.encode(x)
    x_hat = model.decode(codes[:, :count]).cpu()
    names = output_names(arguments.files, ".png")
    for path, name, before, after, code in zip(arguments.files, names, x, x_hat, codes[:, :count].tolist(), strict=True):
        write_png(arguments.out / name, grid(after[None], gap=0))
        yield Result(path, arguments.out / name, code, float((before - after).square().mean()))


def _reconstruct_audio(arguments: Arguments, model: AnytimeModel, count: int) -> Iterator[Result]:
    """Reconstruct crop by crop, the last one padded; the result has the length and loudness of the file."""
    from anytime.data.audio_io import measure_loudness
    from anytime.data.files import local_file

    # Before anything is written: an unreadable file is refused.
    levels = [measure_loudness(local_file(path)) for path in arguments.files]
    for path, name, level in zip(arguments.files, output_names(arguments.files, ".wav"), levels, strict=True):
        yield _reconstruct_audio_file(path, arguments.out / name, level, model, count)


def _reconstruct_audio_file(path: Path, out: Path, level: Loudness, model: AnytimeModel, count: int) -> Result:
    """Reconstruct a few crops at a time: a long recording is never in memory as a whole."""
    import torch
    import torch.nn.functional as F

    from anytime.data.audio_io import read_blocks, write_wav_stream
    from anytime.data.files import local_file
    from anytime.data.loader import to_float

    crop, crops = model.config.autoencoder.shape[-1], []
    squared_error, samples = 0.0, 0

    def pieces() -> Iterator[Float[Tensor, "1 time"]]:
        nonlocal squared_error, samples
        for batch in _regroup(read_blocks(local_file(path), level.gain), CROPS_PER_BATCH * crop):
            x = to_float(torch.from_numpy(batch.copy()))
            codes = model.encode(F.pad(x, (0, -len(x) % crop)).reshape(-1, 1, crop))[:, :count]
            x_hat = model.decode(codes).flatten()[: len(x)].cpu()
            crops.extend(codes.tolist())
            squared_error += float((x - x_hat).double().square().sum())
            samples += len(x)
            yield x_hat[None] / level.gain  # as loud as the file
        if not samples:
            raise UserError(f"{path} is shorter than one sample at 16 kHz; leave it out")

    write_wav_stream(out, pieces())
    note = f", {len(crops)} crops, error at an RMS of 0.1" if len(crops) > 1 else ", error at an RMS of 0.1"
    return Result(path, out, crops, squared_error / samples, note + (", the file is clipped" if level.clipped else ""))


def _regroup(blocks: Iterable[Int16[np.ndarray, " time"]], size: int) -> Iterator[Int16[np.ndarray, " time"]]:
    """Yield the samples of all blocks in multiples of `size`, then the rest."""
    import numpy as np

    pending = np.zeros(0, np.int16)
    for block in blocks:
        pending = np.concatenate([pending, block])
        if full := len(pending) // size * size:
            yield pending[:full]
            pending = pending[full:]
    if len(pending):
        yield pending
