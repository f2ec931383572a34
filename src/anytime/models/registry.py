"""Where models lie: in folders of their own, in finished runs, and in the package (`models/`, made by `anytime.export.bundle`)."""

from __future__ import annotations

from pathlib import Path

from anytime.core.errors import UserError, nearest

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

FOLDER = Path(__file__).parent
LIMIT = 20_000_000
"""Bytes of all models of the package together."""


def names() -> list[str]:
    """The models of the package."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def find(name: str) -> Path | None:
    """The folder of the package's model of that name."""
    return FOLDER / name if name in names() else None


def weight(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def locate(name: str | Path) -> Path:
    """The folder that holds the model: a saved one as it is, a finished run's model inside it, else one of the package."""
    folder = Path(name)
    if (folder / "model" / CONFIG).is_file():
        folder = folder / "model"
    elif not (folder / CONFIG).is_file():
        folder = find(str(name)) or folder
    if not (folder / WEIGHTS).is_file():
        raise UserError(_not_a_model(folder))
    return folder


def _not_a_model(folder: Path) -> str:
    if (folder / "checkpoints").is_dir() or (folder / "environment.json").is_file():
        return f"{folder} is a run that has not finished; give the same `anytime train` command again to finish it"
    if (folder / CONFIG).is_file():
        return f"{folder} has a {CONFIG} but no {WEIGHTS}; restore it from where it came from"
    known = [*names(), *(str(p.parent) for p in Path("runs").glob("*/model"))]
    hint = f"{nearest(str(folder), known)}; or " if known else ""
    own = "one of the package" if names() else "one of the package, which holds none yet"
    return (
        f"{folder} is no model: neither a run folder nor a saved model nor {own}; {hint}train one with `anytime train digits`"
    )
