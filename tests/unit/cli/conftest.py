"""A small saved model, and fixtures that run a command without starting a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from anytime.cli import main
from anytime.model import AnytimeModel, _tiny

collect_ignore = ["conftest.py"]  # no doctests here, and other directories have modules of the same name


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """`command("sample", model, …)` in an empty directory, with an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path.parent / f"{tmp_path.name}-cache"))

    def run(*words: object) -> Outcome:
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        said = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, said.out, said.err)

    return run


@pytest.fixture
def refused(command: Command, tmp_path: Path) -> Callable[..., str]:
    """Run a command that must be refused: one sentence, status 2, no file changed; return the sentence."""

    def run(*words: object) -> str:
        before = _contents(tmp_path)
        outcome = command(*words)
        assert outcome.status == 2
        assert outcome.out == ""
        assert outcome.err.startswith("anytime: ")
        assert outcome.err.endswith("\n")
        assert outcome.err.count("\n") == 1, outcome.err
        assert _contents(tmp_path) == before
        return outcome.err

    return run


def _contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model: 8 codes of 16, grey images of 28 × 28, untrained; its weights are the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AnytimeModel(_tiny()).save(tmp_path_factory.mktemp("models") / "tiny")
