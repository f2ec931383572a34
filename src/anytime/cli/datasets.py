"""The data that a command asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anytime.core.errors import UserError

if TYPE_CHECKING:
    from anytime.data import Dataset


def find_dataset(name: str, data: Path | None, size: int | None, smoke: bool) -> Dataset:
    """A set by name; at smoke scale seeded synthetic examples stand in for one that is absent."""
    from anytime.data import load, synthetic
    from anytime.data.folder import DEFAULT, LARGEST, SMALLEST
    from anytime.data.registry import find, state
    from anytime.data.synthetic import synthetic_sounds

    entry = find(name)
    absent = data is None and state(entry) not in ("embedded", "in the cache")
    if not smoke or not absent or (entry.shape is not None and size is not None):
        return load(name, data=data, size=size)
    side = DEFAULT if size is None else size
    if not SMALLEST <= side <= LARGEST:
        raise UserError(f"--size {side} is outside {SMALLEST}..{LARGEST}: choose a size between them")
    if entry.shape is not None and len(entry.shape) == 2:
        return synthetic_sounds(name)
    return synthetic(name, entry.shape or (3, side, side))
