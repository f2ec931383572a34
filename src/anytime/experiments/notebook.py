"""What an experiment has measured so far, in one small file: killed or paused, it goes on with it, on another machine too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.config import from_dict, read_json, to_dict
from anytime.errors import UserError
from anytime.experiments.results import Row
from anytime.model import ModelConfig
from anytime.storage import write_json
from anytime.training.folder import what
from anytime.training.recipes import RunConfig


@dataclass(frozen=True)
class Piece:
    """Rows that were measured together, and what they depend on."""

    facts: dict[str, Any]
    rows: list[Row]
    environment: dict[str, Any]  # where and with what they were measured
    training: dict[str, Any]  # how the model that was measured came about; empty where there is none


class Notebook:
    """Pieces by name. One whose facts differ from those asked for is not used, and makes way for the new one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pieces()  # a file of another format is told before any work

    def find(self, name: str, facts: Mapping[str, Any]) -> Piece | None:
        piece = self._pieces().get(name)
        return piece if piece is not None and as_today(piece.facts) == _plain(facts) else None

    def keep(self, name: str, piece: Piece) -> Piece:
        """Write it down; returns it as it will be read."""
        # Read again: another process may have kept something meanwhile.
        whole = {key: asdict(value) for key, value in (self._pieces() | {name: piece}).items()}
        write_json(self.path, {"pieces": whole})
        return self._pieces()[name]

    def _pieces(self) -> dict[str, Piece]:
        if not self.path.is_file():
            return {}
        try:
            return {name: Piece(**piece) for name, piece in read_json(self.path)["pieces"].items()}
        except (KeyError, TypeError, AttributeError):
            raise UserError(f"{self.path} holds no measurements of this version; remove it to measure again") from None


def as_today(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts as this version states them: what an older one left out of a config has its default."""
    found = dict(facts)
    with suppress(UserError, TypeError):  # a config of another kind is told by its difference
        if "run" in facts:
            found["run"] = _plain(what(from_dict(RunConfig, facts["run"])))
        if "networks" in facts:
            found["networks"] = [_plain(to_dict(from_dict(ModelConfig, network))) for network in facts["networks"]]
    return found


def _plain(value: Any) -> Any:
    """As it comes back from the file: tuples are lists there."""
    return json.loads(json.dumps(value))
