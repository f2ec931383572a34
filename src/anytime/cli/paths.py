"""Input and output paths of verbs that turn files into files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from anytime.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Conversion:
    """A file to read and the file to write."""

    file: Path
    out: Path


def output_names(files: Sequence[Path], suffix: str) -> list[str]:
    """Return a name for each output; equal names get a number.

    >>> output_names([Path("a/x.png"), Path("y.png"), Path("b/x.png")], ".any")
    ['0000-x.any', 'y.any', '0002-x.any']
    """
    names = [f"{path.stem}{suffix}" for path in files]
    return [name if names.count(name) == 1 else f"{index:04d}-{name}" for index, name in enumerate(names)]


def plan_conversions(paths: Sequence[Path], reads: Collection[str], suffix: str, verb: str) -> list[Conversion]:
    """Return what to read and write, as `cp` does: the last path is the output, a directory if there are several inputs.

    A directory as input stands for its files whose suffix is in `reads`. Outputs in a directory end in `suffix`. Outputs that
    cannot be written, or that would replace an input, are refused.
    """
    from anytime.cli.output import check_not_a_run, check_out_dir

    if len(paths) < 2:
        raise UserError(f"{verb} needs at least two paths: the files to read, then the file or directory to write")
    *given, out = paths
    inputs = [file for path in given for file in expand(path, reads)]
    into_directory = len(given) > 1 or given[0].is_dir() or out.is_dir()
    if into_directory and (out.is_file() or out.suffix.lower() in {suffix, *reads}):
        raise UserError(f"{out} must be a directory when there are several files to read; name one as the last path")
    folder = out if into_directory else out.parent
    check_out_dir(folder, "the output in")
    check_not_a_run(folder, "the output in")
    outputs = [out / name for name in output_names(inputs, suffix)] if into_directory else [out]
    _refuse_replacing(inputs, outputs)
    return [Conversion(*pair) for pair in zip(inputs, outputs, strict=True)]


def expand(path: Path, reads: Collection[str]) -> list[Path]:
    """Return a file, or the files of a directory in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in reads and file.is_file())
    if not found:
        raise UserError(f"{path} has no files that end in {', '.join(sorted(reads))}; name another directory or files")
    return found


def _refuse_replacing(inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
    resolved = {path.resolve() for path in inputs}
    for out in outputs:
        if out.resolve() in resolved:
            raise UserError(f"{out} would replace a file that is read; name another output")
        if out.is_dir():
            raise UserError(f"{out} is a directory; name another output")
