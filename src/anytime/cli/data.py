"""anytime data list | get NAME"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from anytime.cli.options import Common
from anytime.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Arguments(Common):
    action: Annotated[Literal["list", "get"], tyro.conf.Positional, tyro.conf.arg(metavar="list|get")] = "list"
    """List the known sets, or download one and check it."""
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """The set to get."""


def run(arguments: Arguments) -> dict[str, Any]:
    return _list(arguments) if arguments.action == "list" else _get(arguments)


def _list(arguments: Arguments) -> dict[str, Any]:
    from anytime.data.registry import DATASETS, state

    if arguments.name is not None:
        raise UserError(f"`anytime data list` takes no name; to download it say `anytime data get {arguments.name}`")
    datasets = [
        {"name": e.name, "state": state(e), "shape": e.shape, "description": e.description, "licence": e.licence}
        for e in DATASETS.values()
    ]
    for info in datasets:
        shape = "×".join(map(str, info["shape"])) if info["shape"] else "any"
        print(f"{info['name']:<14} {info['state']:<16} {shape:<8} {info['description']}")
    return {"datasets": datasets}


def _get(arguments: Arguments) -> dict[str, Any]:
    from anytime.data import get

    if arguments.name is None:
        raise UserError("`anytime data get` needs a name; `anytime data list` shows them")
    folder = get(arguments.name)
    print(f"{arguments.name} is in {folder}")
    return {"name": arguments.name, "folder": str(folder)}
