"""The program that checks for memorisation."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from anytime import data
from anytime.evaluation.image import memorisation_text
from anytime.model import AnytimeModel
from check_memorisation import main


def test_it_prints_what_it_found(
    tiny: AnytimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = data.load("digits").subset(200, 100)
    monkeypatch.setattr("anytime.data.load", lambda name, data: dataset)
    folder = str(copy.deepcopy(tiny).save(tmp_path / "model"))
    assert main([folder, "--seed", "3", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"] == "python scripts/check_memorisation.py PATH --seed 3 --device cpu"
    assert found["model"] == tiny.hash and "hardware" in found["environment"]
    row = found["row"]
    assert (row["samples"], row["images"], row["seed"], row["temperature"]) == (1000, 100, 3, 1.0)
    assert memorisation_text(row).startswith(
        f"Of 1,000 samples, {row['nearer_to_seen']:.1%} are nearer to one of 100 training images"
    )
    assert memorisation_text({**row, "validation_nearer_to_seen": None}).endswith("; without copies it is half.")


@pytest.mark.parametrize(
    ("arguments", "said"), [(["nothing-here"], "nothing-here"), (["mnist", "--seed", "-1"], "`seed` must be between 0")]
)
def test_a_mistake_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
