"""The measurements of an experiment so far, in one small file. A killed or paused experiment continues from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.core.results import Row
from anytime.core.storage import write_json


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """How a measured run was trained."""

    command: str
    examples: int
    hardware: str
    commit: str | None
    date: str
    precision: str


@dataclass(frozen=True)
class Measurement:
    """Rows measured together, and what they depend on."""

    facts: dict[str, Any]
    rows: list[Row]
    environment: dict[str, Any]  # of the measurement
    training: TrainingRecord | None = None  # None without a run


class MeasurementCache:
    """Measurements by name. One with other facts is ignored, and replaced by the next that is stored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._measurements()  # refuse a file of another format before any work

    def find(self, name: str, facts: Mapping[str, Any]) -> Measurement | None:
        """Return the measurement of that name if it depends on exactly these facts."""
        measurement = self._measurements().get(name)
        return measurement if measurement is not None and measurement.facts == _as_json(facts) else None

    def store(self, name: str, measurement: Measurement) -> Measurement:
        """Write a measurement; return it as it will be read."""
        # Read again: another process may have stored something meanwhile.
        measurements = {key: asdict(value) for key, value in (self._measurements() | {name: measurement}).items()}
        write_json(self.path, {"measurements": measurements})
        return self._measurements()[name]

    def _measurements(self) -> dict[str, Measurement]:
        if not self.path.is_file():
            return {}
        try:
            return {name: _measurement(**fields) for name, fields in read_json(self.path)["measurements"].items()}
        except (KeyError, TypeError, AttributeError):
            raise UserError(f"{self.path} is not a measurement cache of this version; remove it to measure again") from None


def _measurement(training: dict[str, Any] | None, **fields: Any) -> Measurement:
    return Measurement(**fields, training=TrainingRecord(**training) if training else None)


def _as_json(value: Any) -> Any:
    """Return a value as it comes back from the file, where tuples are lists."""
    return json.loads(json.dumps(value))
