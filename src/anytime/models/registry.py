"""The model registry: finds saved models, models of finished runs and the bundled models in this package."""

from __future__ import annotations

import os
from pathlib import Path

from anytime.core.errors import UserError, did_you_mean

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

BUNDLED_DIR = Path(__file__).parent
"""Directory of the bundled models, written by `anytime export --to bundle`."""
MAX_BYTES = 20_000_000
"""Maximum size of all bundled models together."""


def bundled_names() -> list[str]:
    """Return the names of the bundled models."""
    return sorted(path.parent.name for path in BUNDLED_DIR.glob("*/config.json"))


def find_bundled(name: str) -> Path | None:
    """Return the directory of a bundled model, or None."""
    return BUNDLED_DIR / name if name in bundled_names() else None


def total_bytes(folder: Path) -> int:
    """Return the size of all files in a directory and its subdirectories."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def locate(name: str | Path) -> Path:
    """Return a model's directory: a saved model, the model of a finished run, or else a bundled model."""
    if not isinstance(name, str | os.PathLike):
        raise UserError(f"`name` must be the name or the directory of a model, not {name!r}")
    if name == "":
        raise UserError(f"`name` is empty; {did_you_mean('', bundled_names())}")
    folder = Path(name)
    if (folder / "model" / CONFIG).is_file():
        folder = folder / "model"
    elif not (folder / CONFIG).is_file():
        folder = find_bundled(str(name)) or folder
    if not (folder / WEIGHTS).is_file():
        raise UserError(_not_a_model(folder))
    return folder


def _not_a_model(folder: Path) -> str:
    if (folder / "checkpoints").is_dir() or (folder / "environment.json").is_file():
        return f"{folder} is an unfinished run; run the same `anytime train` command again to finish it"
    if (folder / CONFIG).is_file():
        return f"{folder} has a {CONFIG} but no {WEIGHTS}; restore that file"
    known = [*bundled_names(), *(str(p.parent) for p in Path("runs").glob("*/model"))]
    hint = f"{did_you_mean(str(folder), known)}; or " if known else ""
    kinds = "not a run directory, a saved model or a bundled model"
    return f"{folder} is not a model: {kinds}; {hint}train one with `anytime train digits`"
