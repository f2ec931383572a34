"""The dataset of a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anytime.data import Dataset


def find_dataset(name: str, data: Path | None, size: int | None, smoke: bool) -> Dataset:
    """Load a dataset by name; at smoke scale, replace one that is not available by seeded synthetic examples."""
    from anytime.data import load, synthetic_audio, synthetic_images
    from anytime.data.folder import DEFAULT_SIZE, check_size
    from anytime.data.registry import find, state

    info = find(name)
    absent = data is None and state(info) not in ("embedded", "in the cache")
    if not smoke or not absent or (info.shape is not None and size is not None):
        return load(name, data=data, size=size)
    image_size = DEFAULT_SIZE if size is None else size
    check_size(image_size)
    if info.shape is not None and len(info.shape) == 2:
        return synthetic_audio(name)
    return synthetic_images(name, info.shape or (3, image_size, image_size))
