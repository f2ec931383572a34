"""Where models lie: in folders of their own, in finished runs, and in the package (`models/`, made by `anytime.export.bundle`)."""

from __future__ import annotations

from pathlib import Path

from anytime.core.errors import UserError, did_you_mean

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

BUNDLED_DIR = Path(__file__).parent
MAX_BYTES = 20_000_000
"""Bytes of all models of the package together."""


def bundled_names() -> list[str]:
    """The models of the package."""
    return sorted(path.parent.name for path in BUNDLED_DIR.glob("*/config.json"))


def find_bundled(name: str) -> Path | None:
    """The folder of the package's model of that name."""
    return BUNDLED_DIR / name if name in bundled_names() else None


def total_bytes(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def locate(name: str | Path) -> Path:
    """The folder that holds the model: a saved one as it is, a finished run's model inside it, else one of the package."""
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
        return f"{folder} is a run that has not finished; give the same `anytime train` command again to finish it"
    if (folder / CONFIG).is_file():
        return f"{folder} has a {CONFIG} but no {WEIGHTS}; restore it from where it came from"
    known = [*bundled_names(), *(str(p.parent) for p in Path("runs").glob("*/model"))]
    hint = f"{did_you_mean(str(folder), known)}; or " if known else ""
    bundled_text = "one of the package" if bundled_names() else "one of the package, which holds none yet"
    return f"{folder} is no model: neither a run folder nor a saved model nor {bundled_text}; {hint}train one with `anytime train digits`"
