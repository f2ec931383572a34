"""anytime data list | get NAME"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from anytime.cli.options import Common, option
from anytime.core.errors import UserError

EXAMPLES = ("anytime data list", "anytime data get digits")


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
        print(f"{arguments.name} is in {folder}")
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
