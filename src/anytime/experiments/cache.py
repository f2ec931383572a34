"""The measurements of an experiment so far, in one small file. A killed or paused experiment continues from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anytime.core.config import from_dict, read_json
from anytime.core.errors import UserError
from anytime.core.file_lock import hold_write_lock
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
        self.measurements()  # refuse a file of another format before any work

    def find(self, name: str, facts: Mapping[str, Any]) -> Measurement | None:
        """Return the measurement of that name if it depends on exactly these facts."""
        measurement = self.measurements().get(name)
        return measurement if measurement is not None and measurement.facts == _as_json(facts) else None

    def changed(self, name: str, facts: Mapping[str, Any]) -> list[str]:
        """Return the facts in which the measurement of that name differs; none if there is no measurement."""
        measurement = self.measurements().get(name)
        return [] if measurement is None else changed_facts(measurement.facts, _as_json(facts))

    def store(self, name: str, measurement: Measurement) -> Measurement:
        """Write a measurement; return it as it will be read."""
        with hold_write_lock(self.path):  # another process may store something meanwhile
            measurements = {key: asdict(value) for key, value in (self.measurements() | {name: measurement}).items()}
            write_json(self.path, {"measurements": measurements})
        return self.measurements()[name]

    def measurements(self) -> dict[str, Measurement]:
        """Return all measurements by name."""
        if not self.path.exists():
            return {}
        try:
            return {name: _measurement(**fields) for name, fields in read_json(self.path)["measurements"].items()}
        except (KeyError, TypeError, AttributeError):
            raise UserError(f"{self.path} is not a measurement cache of this version; remove it to measure again") from None


def _measurement(facts: Any, rows: Any, environment: Any, training: Any) -> Measurement:
    if not isinstance(facts, dict) or not isinstance(environment, dict) or not isinstance(rows, list):
        raise TypeError("not a measurement")
    if not all(isinstance(row, dict) for row in rows):
        raise TypeError("not rows")
    record = None if training is None else from_dict(TrainingRecord, training, "training")
    return Measurement(facts, rows, environment, record)


def changed_facts(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the facts that differ.

    >>> changed_facts({"classifier": "a", "samples": 10}, {"classifier": "b", "samples": 10})
    ['classifier']
    """
    return [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]


def _as_json(value: Any) -> Any:
    """Return a value as it comes back from the file, where tuples are lists."""
    return json.loads(json.dumps(value))
