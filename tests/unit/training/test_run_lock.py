from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from anytime.training.run_lock import LOCK, OWNER, describe_owner, hold_lock, name_owner

Refused = Callable[..., str]


def take(run_dir: Path) -> None:
    with hold_lock(run_dir), name_owner(run_dir):
        pass


def test_a_second_training_learns_of_the_first(tmp_path: Path, refused: Refused) -> None:
    with hold_lock(tmp_path), name_owner(tmp_path):
        sentence = refused(take, tmp_path)
    assert f"another process is training in {tmp_path} (process {os.getpid()} on " in sentence
    assert ", started 20" in sentence
    take(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK]


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b'{"process": "x"}'])
def test_a_lock_without_a_known_owner_is_a_lock(content: bytes | None, tmp_path: Path, refused: Refused) -> None:
    if content is not None:
        (tmp_path / OWNER).write_bytes(content)
    assert describe_owner(tmp_path) == ""
    with hold_lock(tmp_path):
        assert f"another process is training in {tmp_path};" in refused(take, tmp_path)


def test_the_lock_never_changes_a_file(tmp_path: Path, refused: Refused) -> None:
    precious, run = tmp_path / "precious", tmp_path / "run"
    precious.write_text("text")
    run.mkdir()
    (run / LOCK).symlink_to(precious)
    assert "symbolic link" in refused(take, run)
    (run / LOCK).unlink()
    (run / LOCK).hardlink_to(precious)
    take(run)
    assert precious.read_text() == "text"


def test_a_dangling_link_is_not_followed(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in refused(take, tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_places_that_cannot_hold_a_run(tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / LOCK)
    assert "is not a file" in refused(take, tmp_path)
    (tmp_path / "file").touch()
    assert "cannot be written" in refused(take, tmp_path / "file")
    assert "UTF-8" in refused(take, tmp_path / "run\udcff")
    assert not (tmp_path / "run\udcff").exists()
