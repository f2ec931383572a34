from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.evaluation.temperatures import FID_MARGIN, best_temperature, main, max_codes, sweep
from anytime.metrics.features import RandomNetwork
from anytime.metrics.quality import Row, sample_rows
from anytime.model import AnytimeModel


@pytest.fixture
def folder(tiny: AnytimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A saved model, whose data are few and whose cache is its own."""
    dataset = data.load("digits").subset(200, 100)
    monkeypatch.setattr("anytime.data.load", lambda name, data: dataset)
    monkeypatch.setenv("ANYTIME_CACHE", str(tmp_path / "cache"))
    return str(copy.deepcopy(tiny).save(tmp_path / "model"))


def test_the_least_mean_is_chosen() -> None:
    found = {0.8: (5.0, 9.0), 0.9: (7.0, 6.0), 1.0: (4.0, 10.0)}
    rows = [{"temperature": t, "fid": fid} for t, both in found.items() for fid in both]
    assert best_temperature(rows, "fid") == 0.9


def test_codes_are_enough_where_more_make_samples_worse() -> None:
    def most(*distances: float) -> int:
        return max_codes([{"codes": index + 1, "fid": fid} for index, fid in enumerate(distances)], "fid")

    assert most(9.0, 8.0, 7.0) == 3
    assert most(9.0, 7.0, 7.0 + 0.9 * FID_MARGIN, 7.0 + 1.1 * FID_MARGIN) == 3, "above the best of all before, not the last"
    assert most(9.0, 7.0, 8.0, 6.0) == 2, "what is kept would rise within"


def test_samples_are_compared_with_validation_images(tiny: AnytimeModel, tmp_path: Path) -> None:
    dataset, network = data.load("digits").subset(200, 100), RandomNetwork(torch.device("cpu"))
    rows = [row for found in sweep(tiny, dataset, network, (0.7, 1.0), 50, tmp_path) for row in found]
    assert [(row["temperature"], row["codes"]) for row in rows] == [(t, c) for t in (0.7, 1.0) for c in (2, 3, 5, 6, 8)]
    assert {row["reference"] for row in rows} == {len(dataset.validation)} != {len(dataset.published_train)}
    assert {row["seed"] for row in rows} != {0}, "the seed of the reported samples"
    assert rows[0] != {**rows[5], "temperature": 0.7}
    (few,) = sweep(tiny, dataset, network, (1.0,), 50, tmp_path, codes=(1, 3, 8))
    assert [row["codes"] for row in few] == [1, 3, 8]
    assert few[1] == {**rows[6], "fraction": 3 / 8} and few[2] == rows[9], "the same samples, at other lengths"


def test_it_prints_what_it_chose_and_why(tiny: AnytimeModel, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([folder, "--smoke", "--grid", "0.5", "1", "--samples", "40", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"] in (0.5, 1.0) and found["compared_with"] == "100 validation pictures"
    assert found["command"].startswith("python -m anytime.evaluation.temperatures PATH --smoke --grid 0.5 1 --samples 40")
    assert found["by"].endswith("over 5 lengths")
    assert found["codes"] in (2, 3, 5, 6, 8) and f"at {found['chosen']:g} whose" in found["codes_by"]
    assert len(found["rows"]) == 10 and "hardware" in found["environment"] and found["model"] == tiny.hash


def test_a_killed_one_goes_on_from_the_last_temperature(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, drawn = tmp_path / "numbers.json", []
    call = [folder, "--smoke", "--samples", "40", "--device", "cpu", "--grid", "0.5", "1"]
    assert main(call) == 0
    whole = json.loads(capsys.readouterr().out)

    def killed(*given: object, temperature: float, **more: object) -> list[Row]:
        drawn.append(temperature)
        if temperature == 1 and len(drawn) == 2:
            raise KeyboardInterrupt
        return sample_rows(*given, temperature=temperature, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("anytime.evaluation.temperatures.sample_rows", killed)
    with pytest.raises(KeyboardInterrupt):
        main([*call, "--out", str(out)])
    assert {row["temperature"] for row in json.loads(out.read_text())["rows"]} == {0.5}
    capsys.readouterr()
    assert main([*call, "--out", str(out)]) == 0
    assert drawn == [0.5, 1.0, 1.0], "nothing is measured twice"
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == json.loads(out.read_text())["rows"] == whole["rows"]
    assert main([*call, "--out", str(out), "--samples", "41"]) == 2
    assert "holds other measurements than these" in capsys.readouterr().err
    assert main([*call, "--out", "/proc/numbers.json"]) == 2
    assert "/proc/numbers.json cannot be written" in capsys.readouterr().err and len(drawn) == 3, "before anything is drawn"


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
