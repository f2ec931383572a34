"""The files of a finished run with their hashes, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anytime.core.config import read_json
from anytime.core.errors import UserError, reason
from anytime.core.storage import file_digest, write_json

FILE = "files.json"
"""SHA-256 of every recorded file, by its path in the run directory."""
RECORDED = (
    "config.json",
    "environment.json",
    "metrics.jsonl",
    "code_stats.json",
    "model/config.json",
    "model/*.safetensors",
    "checkpoints/after-*.safetensors",
)
"""What training writes once. `evaluate` and a repeated `train` may add to the rest."""
LATER = ("environment.json",)
"""Files that older records do not have."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The outcome of hashing the files of a run again."""

    unchanged: tuple[str, ...]
    altered: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """What changed, as part of a sentence; empty if nothing did."""
        parts = ((self.altered, "altered"), (self.missing, "missing"), (self.added, "new"))
        texts = [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {state}" for names, state in parts if names]
        return " and ".join(texts)


def record_files(run_dir: Path) -> None:
    """Hash the files of a finished run."""
    write_json(run_dir / FILE, {"sha256": {name: file_digest(run_dir / name) for name in _names(run_dir)}})


def check_files(run_dir: Path) -> FileCheck | None:
    """Hash the recorded files of a run again; None if none were recorded."""
    path = run_dir / FILE
    if not path.is_file():
        return None
    recorded = read_json(path).get("sha256")
    if not isinstance(recorded, dict) or not all(isinstance(name, str) and is_inside(name) for name in recorded):
        raise UserError(f"{path} is not a record of a run's files; restore it or remove it")
    states = {name: _state(run_dir / name, digest) for name, digest in recorded.items()}
    return FileCheck(
        unchanged=tuple(name for name, state in states.items() if state == "unchanged"),
        altered=tuple(name for name, state in states.items() if state == "altered"),
        missing=tuple(name for name, state in states.items() if state == "missing"),
        added=tuple(name for name in _names(run_dir) if name not in recorded and name not in LATER),
    )


def is_inside(name: str) -> bool:
    """Return whether a recorded path stays inside its run directory.

    >>> is_inside("model/config.json"), is_inside("../config.json"), is_inside("/etc/passwd")
    (True, False, False)
    """
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _names(run_dir: Path) -> Iterator[str]:
    for pattern in RECORDED:
        for path in sorted(run_dir.glob(pattern)):
            if path.is_file() and not path.name.startswith("."):
                yield path.relative_to(run_dir).as_posix()


def _state(path: Path, digest: object) -> str:
    try:
        if not path.is_file():
            return "missing"
        return "unchanged" if file_digest(path) == digest else "altered"
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)}); check its name and its permissions") from None
