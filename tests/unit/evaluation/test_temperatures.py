from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.evaluation.features import RandomNetwork
from anytime.evaluation.temperatures import chosen, main, measured
from anytime.model import AnytimeModel


def test_the_least_mean_is_chosen() -> None:
    found = {0.8: (5.0, 9.0), 0.9: (7.0, 6.0), 1.0: (4.0, 10.0)}
    rows = [{"temperature": t, "fid": fid} for t, both in found.items() for fid in both]
    assert chosen(rows, "fid") == 0.9


def test_other_samples_are_compared_with_the_validation_pictures(tiny: AnytimeModel, tmp_path: Path) -> None:
    dataset, network = data.load("digits").subset(200, 100), RandomNetwork(torch.device("cpu"))
    rows = measured(tiny, dataset, network, (0.7, 1.0), 50, tmp_path)
    assert [(row["temperature"], row["codes"]) for row in rows] == [(t, c) for t in (0.7, 1.0) for c in (2, 3, 5, 6, 8)]
    assert {row["reference"] for row in rows} == {len(dataset.validation)} != {len(dataset.published_train)}
    assert {row["seed"] for row in rows} != {0}, "the seed of the reported samples"
    assert rows[0] != {**rows[5], "temperature": 0.7}
    few = measured(tiny, dataset, network, (1.0,), 50, tmp_path, codes=(1, 3, 8))
    assert [row["codes"] for row in few] == [1, 3, 8]
    assert few[1] == {**rows[6], "fraction": 3 / 8} and few[2] == rows[9], "the same samples, at other lengths"


def test_it_prints_what_it_chose_and_why(
    tiny: AnytimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = data.load("digits").subset(200, 100)
    monkeypatch.setattr("anytime.data.load", lambda name, data: dataset)
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path / "cache"))
    folder = str(copy.deepcopy(tiny).save(tmp_path / "model"))
    assert main([folder, "--smoke", "--grid", "0.5", "1", "--samples", "40", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] in (0.5, 1.0) and found["compared_with"] == "100 validation pictures"
    assert found["command"].startswith("python -m anytime.evaluation.temperatures PATH --smoke --grid 0.5 1 --samples 40")
    assert found["by"].endswith("over 5 lengths")
    assert len(found["rows"]) == 10 and "hardware" in found["environment"] and found["model"] == tiny.hash


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing-here"], "nothing-here"),
        (["mnist", "--grid", "0"], "--temperature must be above 0"),
        (["mnist", "--samples", "1"], "--samples must be at least 2"),
        (["mnist", "--codes", "4", "17"], "--codes must be between 1 and 16, the model's length, not 17"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
