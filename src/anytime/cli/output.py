"""Files of samples: the suffix decides the format."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from anytime.core.errors import UserError
from anytime.core.storage import remove_partials, write_atomic
from anytime.data.audio_io import write_wav
from anytime.data.image_grid import grid, write_gif, write_png
from anytime.model import AnytimeModel
from anytime.sampling.sample import Sample
from anytime.sampling.sample_file import npz_bytes
from anytime.sampling.sample_view import file_suffix

MAX_FILES = 1000
"""Largest number of samples written one file each; a directory of more has shards."""
RUN_PARTS = ("model", "checkpoints", "samples")
"""Directories that a run writes itself."""
RUN_FILES = ("environment.json", "metrics.jsonl", "checkpoints")
"""What lies beside the config.json of a run."""
SAMPLE_FILES = re.compile(r"x-\d{4}\.(png|wav)|shard-\d{5}\.(npz|tar)|manifest\.json")
"""Names of the files in such a directory."""


def check_writable(path: Path) -> None:
    """Refuse an output file that cannot be written, before any work is done."""
    suffix = file_suffix(path)
    if suffix not in ("", ".png", ".gif", ".npz", ".wav"):
        raise UserError(f"--out {path}: the suffix {path.suffix} is not known; use .png, .gif, .npz, .wav or a directory")
    target = follow(path)
    try:
        existing = next(p for p in (target, *target.absolute().parents) if p.exists())
    except OSError as error:  # such as a name that is too long
        raise UserError(f"--out {path} cannot be written ({error.strerror}); choose another place") from None
    check_not_a_run(path)
    is_file = bool(suffix) and existing == target
    if is_file and path.is_dir():
        raise UserError(f"--out {path} is a directory; name a file in it")
    if not (is_file or existing.is_dir()) or not os.access(existing, os.W_OK):
        raise UserError(f"--out {path} cannot be written; choose another place")


def check_out_dir(folder: Path, flag: str = "--out") -> None:
    """Refuse a directory that cannot be written before any work is done. Tests by writing: permissions do not cover all."""
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryDirectory(dir=existing):
            pass
    except OSError as error:
        raise UserError(f"{flag} {folder} cannot be written ({error.strerror}); choose another place") from None
    check_not_a_run(folder, flag)


def check_not_a_run(path: Path, flag: str = "--out") -> None:
    """Refuse the directory of a run or of a saved model as output, and the directories that a run writes itself."""
    if not path.is_dir():
        return
    folder = path.resolve()
    if is_run(folder) or ((folder / "config.json").is_file() and (folder / "model.safetensors").is_file()):
        raise UserError(f"{flag} {path} is the directory of a run or a model; choose another place")
    if folder.name in RUN_PARTS and is_run(folder.parent):
        raise UserError(f"{flag} {path} is written by the run in {folder.parent}; choose another place")


def is_run(folder: Path) -> bool:
    """Return whether a directory holds a run."""
    return (folder / "config.json").is_file() and any((folder / name).exists() for name in RUN_FILES)


def follow(path: Path) -> Path:
    """Return what a link points to, so that a file written there does not replace the link."""
    if not os.path.islink(path):  # noqa: PTH114 (`is_symlink` raises for a name that is too long)
        return path
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # Python 3.11 raises RuntimeError for a loop
        raise UserError(f"--out {path} is a link in a loop; choose another place") from None


def write_sample(out: Path, model: AnytimeModel, sample: Sample) -> str:
    """Write a sample in the format of the suffix; return a text that says where it is."""
    path = follow(out)
    suffix = file_suffix(out)
    remove_partials(path.parent if suffix else path)
    match suffix:
        case ".png":
            write_png(path, grid(sample.data))
        case ".gif":
            prefixes = (sample.codes[:, :count] for count in range(1, sample.codes.shape[1] + 1))
            write_gif(path, [grid(model.decode(codes).cpu()) for codes in prefixes], 0.2)
        case ".npz":
            write_atomic(path, npz_bytes(sample))
        case ".wav":
            return _write_wavs(out, path, sample)
        case _:
            written = _write_folder(path, sample)
            older = [file.name for file in path.iterdir() if SAMPLE_FILES.fullmatch(file.name) and file.name not in written]
            return f"{out}, beside {len(older)} files of earlier samples" if older else str(out)
    return str(out)


def _write_wavs(out: Path, path: Path, sample: Sample) -> str:
    """Write one file to `path`, several beside `out` with a number: x-0000.wav, x-0001.wav, …"""
    several = len(sample.data) > 1
    names = [out.with_name(f"{out.stem}-{index:04d}.wav") if several else path for index in range(len(sample.data))]
    for name, x in zip(names, sample.data, strict=True):
        write_wav(name, x)
    return f"{names[0]} to {names[-1].name}" if several else str(out)


def _write_folder(folder: Path, sample: Sample) -> set[str]:
    """Write one file per sample; return their names."""
    names = [f"x-{row:04d}.{'wav' if sample.data.ndim == 3 else 'png'}" for row in range(len(sample.data))]
    for name, x in zip(names, sample.data, strict=True):
        if sample.data.ndim == 3:
            write_wav(folder / name, x)
        else:
            write_png(folder / name, grid(x[None], gap=0))
    return set(names)
