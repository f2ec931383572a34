"""The commit is recorded only from a checkout that tracks the package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from anytime.core import environment

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *IDENTITY, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit around an untracked copy of the module."""
    monkeypatch.delenv("ANYTIME_COMMIT", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "theirs")
    copy = tmp_path / "site-packages" / "environment.py"
    copy.parent.mkdir()
    copy.write_text("")
    monkeypatch.setattr(environment, "__file__", str(copy))
    return tmp_path


def test_a_repository_around_the_package_is_not_its_own(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment._commit() is None
    monkeypatch.setenv("ANYTIME_COMMIT", "abc123")
    assert environment._commit() == "abc123"


def test_a_checkout_that_tracks_the_package(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git(repository, "add", "site-packages")
    git(repository, "commit", "--quiet", "--message", "ours")
    commit = git(repository, "rev-parse", "--short", "HEAD")
    assert environment._commit() == commit
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))  # as in a hook of another repository
    assert environment._commit() == commit


def test_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert environment._commit() is None
