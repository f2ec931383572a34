"""What an experiment has measured so far, in one small file: killed or paused, it goes on with it, on another machine too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.core.results import Row
from anytime.core.storage import write_json

Update = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Measurement:
    """Rows that were measured together, and what they depend on."""

    facts: dict[str, Any]
    rows: list[Row]
    environment: dict[str, Any]  # where and with what they were measured
    training: dict[str, Any]  # how the model that was measured came about; empty where there is none


class MeasurementCache:
    """Pieces by name. One whose facts differ from those asked for is not used, and makes way for the new one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._measurements()  # a file of another format is told before any work

    def find(self, name: str, facts: Mapping[str, Any], update: Update = dict) -> Measurement | None:
        """The piece of that name, if it depends on just these facts, once those of an older version are brought up to date."""
        measurement = self._measurements().get(name)
        return measurement if measurement is not None and update(measurement.facts) == _as_json(facts) else None

    def holds(self, name: str, facts: Mapping[str, Any], update: Update = dict) -> bool:
        """Whether a piece of that name depends on these facts, among others."""
        measurement = self._measurements().get(name)
        if measurement is None:
            return False
        known = update(measurement.facts)
        return all(known.get(key) == _as_json(value) for key, value in facts.items())

    def store(self, name: str, measurement: Measurement) -> Measurement:
        """Write it down; returns it as it will be read."""
        # Read again: another process may have kept something meanwhile.
        measurements = {key: asdict(value) for key, value in (self._measurements() | {name: measurement}).items()}
        write_json(self.path, {"measurements": measurements})
        return self._measurements()[name]

    def _measurements(self) -> dict[str, Measurement]:
        if not self.path.is_file():
            return {}
        try:
            return {name: Measurement(**measurement) for name, measurement in read_json(self.path)["measurements"].items()}
        except (KeyError, TypeError, AttributeError):
            raise UserError(f"{self.path} holds no measurements of this version; remove it to measure again") from None


def _as_json(value: Any) -> Any:
    """As it comes back from the file: tuples are lists there."""
    return json.loads(json.dumps(value))
