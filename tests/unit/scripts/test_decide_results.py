"""Deciding committed results again: verdicts change, numbers do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import decide_results
from decide_results import RESULTS


def test_verdicts_are_decided_again_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tailored" / "cifar10.json"
    path.parent.mkdir()
    shutil.copy(RESULTS / "tailored" / "cifar10.json", path)
    before = json.loads(path.read_text())
    assert decide_results.main(["--check"], tmp_path) == 0
    changed = json.loads(path.read_text())
    changed["verdicts"][0]["holds"] = True
    path.write_text(json.dumps(changed))
    assert decide_results.main(["--check"], tmp_path) == 1
    assert "tailored/cifar10.json: verdicts do not follow from the rows" in capsys.readouterr().out
    assert json.loads(path.read_text()) == changed, "a check writes nothing"
    assert decide_results.main([], tmp_path) == 0
    assert json.loads(path.read_text()) == before
