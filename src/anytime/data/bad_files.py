"""Files of a folder that cannot be read: all of them are named at once, or left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.core.progress import track
from anytime.core.storage import write_json
from anytime.data.dataset import Dataset, ReadOptions
from anytime.data.files import BadFileError, DataFile, decoded_path

MAX_NAMED = 30
"""Names in a message; the number of the others is given."""


def read_good_files(
    options: ReadOptions,
    files: Sequence[DataFile],
    read: Callable[[Sequence[DataFile]], Dataset],
    check: Callable[[DataFile], object],
) -> Dataset:
    """Read files. If one is bad, check all: refuse them by name, or with `options.skip_bad` read the others.

    `check` raises a `BadFileError` for a bad file. The names of skipped files are cached and become part of the source.
    """
    path = decoded_path(options.cache, "bad files", files, ".json")
    bad = _remembered(path) if options.skip_bad else []
    try:
        dataset = read([file for file in files if file.name not in bad])
    except BadFileError as first:
        bad = _find_bad(files, check)
        if not options.skip_bad or not bad:
            raise _refusal(options, files, bad, first) from None
        with suppress(OSError):
            write_json(path, {"bad": bad})
        dataset = read([file for file in files if file.name not in bad])
    return replace(dataset, source=f"{dataset.source}; skipped {_list(bad)}") if bad else dataset


def _find_bad(files: Sequence[DataFile], check: Callable[[DataFile], object]) -> list[str]:
    """Return the names of all bad files."""

    def is_bad(file: DataFile) -> bool:
        try:
            check(file)
        except BadFileError:
            return True
        return False

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = track(pool.map(is_bad, files), len(files), "looking for files that cannot be read")
        return [file.name for file, bad in zip(files, found, strict=True) if bad]


def _refusal(options: ReadOptions, files: Sequence[DataFile], bad: Sequence[str], first: BadFileError) -> UserError:
    if len(bad) <= 1:
        return UserError(f"{first}, or leave it out with `skip_bad`")
    named = f"{len(bad):,} of {len(files):,} files in {options.root} cannot be read ({_list(bad)})"
    return UserError(f"{named}: remove or replace them, or leave them out with `skip_bad`")


def _list(names: Sequence[str]) -> str:
    others = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + others


def _remembered(path: Path) -> list[str]:
    try:
        found = read_json(path).get("bad") if path.is_file() else None
    except UserError:  # a damaged file: all files are checked again
        return []
    return [str(name) for name in found] if isinstance(found, list) else []
