"""The program that chooses a model's temperature and number of codes."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from anytime import data
from anytime.model import AnytimeModel
from choose_temperature import FID_MARGIN, best_temperature, main, max_codes


def test_the_least_mean_distance_is_chosen() -> None:
    found = {0.8: (5.0, 9.0), 0.9: (7.0, 6.0), 1.0: (4.0, 10.0)}
    rows = [{"temperature": t, "fid": fid} for t, both in found.items() for fid in both]
    assert best_temperature(rows, "fid") == 0.9


def test_codes_that_make_samples_worse_are_left_out() -> None:
    def most(*distances: float) -> int:
        return max_codes([{"codes": index + 1, "fid": fid} for index, fid in enumerate(distances)], "fid")

    assert most(9.0, 8.0, 7.0) == 3
    assert most(9.0, 7.0, 7.0 + 0.9 * FID_MARGIN, 7.0 + 1.1 * FID_MARGIN) == 3, "compared with the least, not the last"
    assert most(9.0, 7.0, 8.0, 6.0) == 2, "no later length counts"


def test_it_prints_the_choice_and_its_rows(
    tiny: AnytimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = data.load("digits").subset(200, 100)
    monkeypatch.setattr("anytime.data.load", lambda name, data: dataset)
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path / "cache"))
    folder = str(copy.deepcopy(tiny).save(tmp_path / "model"))
    assert main([folder, "--smoke", "--grid", "0.5", "1", "--samples", "40", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["temperature"] in (0.5, 1.0) and found["codes"] in (2, 3, 5, 6, 8)
    assert [(row["temperature"], row["codes"]) for row in found["rows"]] == [
        (t, c) for t in (0.5, 1.0) for c in (2, 3, 5, 6, 8)
    ]
    assert {row["reference"] for row in found["rows"]} == {len(dataset.validation)} != {len(dataset.published_train)}
    assert {row["seed"] for row in found["rows"]} != {0}, "the seed of the reported samples"
    assert found["command"].startswith("python scripts/choose_temperature.py PATH --smoke --grid 0.5 1")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing-here"], "nothing-here"),
        (["mnist", "--grid", "0"], "`temperature` must be between 0.001 and 100"),
        (["mnist", "--codes", "4", "17"], "`codes` must be between 1 and 16, the model's length, not 17"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
