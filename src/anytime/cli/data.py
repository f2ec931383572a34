"""anytime data list | get NAME, and the dataset of any other command"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anytime.cli.options import Common, option
from anytime.cli.stdout import say
from anytime.core.errors import UserError

if TYPE_CHECKING:
    from anytime.data import Dataset

EXAMPLES = ("anytime data list", "anytime data get digits")
CACHE_PARTS = ("decoded", "features", "classifiers")
"""Directories of the cache whose files this program writes."""


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    """Arguments of `anytime data`."""

    action: Annotated[Literal["list", "get"], tyro.conf.Positional, option("list|get")] = "list"
    """list: show the known datasets; get: download one and verify it."""
    name: Annotated[str | None, tyro.conf.Positional, option("NAME")] = None
    """The dataset to download."""


def run(arguments: Arguments) -> dict[str, Any]:
    """List the datasets or download one."""
    from anytime.data import get
    from anytime.data.registry import DATASETS, state

    if arguments.action == "get":
        if arguments.name is None:
            raise UserError("`anytime data get` needs a name; `anytime data list` shows them")
        folder = get(arguments.name)
        say(f"{arguments.name} is in {folder}")
        return {"name": arguments.name, "folder": str(folder)}
    if arguments.name is not None:
        raise UserError(f"`anytime data list` takes no name; to download it run `anytime data get {arguments.name}`")
    datasets = [
        {"name": e.name, "state": state(e), "shape": e.shape, "description": e.description, "licence": e.licence}
        for e in DATASETS.values()
    ]
    for info in datasets:
        shape = "×".join(map(str, info["shape"])) if info["shape"] else "any"
        print(f"{info['name']:<14} {info['state']:<16} {shape:<8} {info['description']}")
    return {"datasets": datasets}


def clean_cache() -> None:
    """Remove the temporary files that killed processes left in the cache."""
    from anytime.core.storage import remove_partials
    from anytime.data.download import cache_dir

    for folder in (cache_dir(), *(cache_dir() / name for name in CACHE_PARTS)):
        remove_partials(folder)


def find_dataset(
    name: str, data: Path | None, size: int | None, smoke: bool, skip_bad: bool = False, subject: str = "`name`"
) -> Dataset:
    """Load a dataset by name; at smoke scale, replace one that is not available by seeded synthetic examples.

    An error calls the name `subject`.
    """
    from anytime.data import load, synthetic_audio, synthetic_images
    from anytime.data.folder import DEFAULT_SIZE, check_size
    from anytime.data.registry import DATASETS, find, state

    clean_cache()
    if name not in DATASETS and os.path.isdir(name):  # noqa: PTH112 (`Path.is_dir` raises for a name that is too long)
        raise UserError(
            f"{name} is a directory and not a dataset; for your own files write `folder --data {shlex.quote(name)}`"
        )
    info = find(name, subject)
    absent = data is None and state(info) not in ("embedded", "in the cache")
    if not smoke or not absent or (info.shape is not None and size is not None):
        return load(name, data=data, size=size, skip_bad=skip_bad)
    image_size = DEFAULT_SIZE if size is None else size
    check_size(image_size)
    if info.shape is not None and len(info.shape) == 2:
        return synthetic_audio(name)
    return synthetic_images(name, info.shape or (3, image_size, image_size))
