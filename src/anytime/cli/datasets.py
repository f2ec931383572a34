"""The data that a command asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anytime.core.errors import UserError

if TYPE_CHECKING:
    from anytime.data import Dataset


def find_dataset(name: str, data: Path | None, size: int | None, smoke: bool) -> Dataset:
    """A set by name; at smoke scale seeded synthetic examples stand in for one that is absent."""
    from anytime.data import load, synthetic_images
    from anytime.data.folder import DEFAULT_SIZE, MAX_SIZE, MIN_SIZE
    from anytime.data.registry import find, state
    from anytime.data.synthetic import synthetic_audio

    info = find(name)
    absent = data is None and state(info) not in ("embedded", "in the cache")
    if not smoke or not absent or (info.shape is not None and size is not None):
        return load(name, data=data, size=size)
    image_size = DEFAULT_SIZE if size is None else size
    if not MIN_SIZE <= image_size <= MAX_SIZE:
        raise UserError(f"--size {image_size} is outside {MIN_SIZE}..{MAX_SIZE}: choose a size between them")
    if info.shape is not None and len(info.shape) == 2:
        return synthetic_audio(name)
    return synthetic_images(name, info.shape or (3, image_size, image_size))
