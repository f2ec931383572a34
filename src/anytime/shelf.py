"""The models that come with the package: one folder each in `models/`, made by `python -m anytime.bundle`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "models"
LIMIT = 20_000_000
"""Bytes of all of them together."""


def names() -> list[str]:
    """Those that are there."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def find(name: str) -> Path | None:
    """The folder of the model of that name."""
    return FOLDER / name if name in names() else None


def weight(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
