from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from anytime.training.run_files import FILE, check_files, record_files

FILES = ("checkpoints/after-prior.safetensors", "config.json", "metrics.jsonl", "model/config.json", "model/model.safetensors")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in (*FILES, "checkpoints/step-000000001.safetensors", "samples/x.png", "model/.x.0123abcd.partial"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    record_files(tmp_path)
    return tmp_path


def test_an_unchanged_run(run: Path) -> None:
    found = check_files(run)
    assert found is not None
    assert sorted(found.unchanged) == sorted(FILES)
    assert found.problem == ""
    (run / "model" / "quality.json").touch()  # an evaluation adds it
    assert check_files(run) == found


def test_what_changed_is_named(run: Path) -> None:
    (run / "config.json").write_text("{}")
    (run / "metrics.jsonl").unlink()
    (run / "model" / "config.json").unlink()
    (run / "model" / "config.json").mkdir()
    found = check_files(run)
    assert found is not None
    assert (found.altered, found.missing) == (("config.json",), ("metrics.jsonl", "model/config.json"))
    assert found.problem == "config.json is altered and metrics.jsonl, model/config.json are missing"


def test_without_a_record(tmp_path: Path) -> None:
    assert check_files(tmp_path) is None


@pytest.mark.parametrize("recorded", [{}, {"sha256": []}, {"sha256": {"../x": "0"}}, {"sha256": {"/etc/passwd": "0"}}])
def test_a_record_that_is_none(recorded: object, run: Path, refused: Callable[..., str]) -> None:
    (run / FILE).write_text(json.dumps({"format": 1} | recorded))  # type: ignore[operator]
    assert "not a record" in refused(check_files, run)


def test_a_digest_of_another_type_does_not_match(run: Path) -> None:
    (run / FILE).write_text(json.dumps({"format": 1, "sha256": {"config.json": 3}}))
    found = check_files(run)
    assert found is not None and found.altered == ("config.json",)
