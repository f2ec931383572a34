"""What was measured is kept, and used only where everything it depends on is the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.errors import UserError
from anytime.experiments.notebook import Notebook, Piece
from anytime.experiments.results import Row, Verdict
from anytime.experiments.workbench import Setting, Workbench
from anytime.training.folder import what
from anytime.training.pause import Pause, Paused
from anytime.training.recipes import recipe

PIECE = Piece({"samples": 10, "fractions": (0.2, 1.0)}, [{"fid": 3.15}], {"torch": "2.13"}, {})


def test_a_piece_is_found_by_its_facts(tmp_path: Path) -> None:
    book = Notebook(tmp_path / "deep" / "book.json")
    assert book.find("ordered 0", PIECE.facts) is None
    assert book.keep("ordered 0", PIECE).rows == PIECE.rows
    again = Notebook(book.path)
    found = again.find("ordered 0", PIECE.facts)
    assert found is not None and found.rows == [{"fid": 3.15}]
    assert again.find("ordered 0", PIECE.facts | {"samples": 11}) is None
    assert again.find("ordered 1", PIECE.facts) is None


def test_a_config_from_before_a_choice_was_there_means_its_default(tmp_path: Path) -> None:
    config = recipe("mnist", "paper", (1, 28, 28))
    today = {"run": what(config), "networks": [what(config)["model"]]}
    older = copy.deepcopy(today)
    for key in ("tune",):
        del older["run"][key]
    del older["run"]["ordered"]["spectral"]
    del older["networks"][0]["autoencoder"]["network"]
    book = Notebook(tmp_path / "book.json")
    book.keep("ordered 0", Piece(older, [{"fid": 3.15}], {}, {}))
    assert book.find("ordered 0", today) is not None
    assert book.find("ordered 0", {**today, "run": what(replace(config, seed=1))}) is None
    book.keep("ordered 0", Piece({"run": {"no": "config"}}, [], {}, {}))
    assert book.find("ordered 0", today) is None


def test_pieces_of_others_stay(tmp_path: Path) -> None:
    first, second = Notebook(tmp_path / "book.json"), Notebook(tmp_path / "book.json")
    first.keep("a", PIECE)
    second.keep("b", PIECE)
    assert first.find("b", PIECE.facts) is not None
    assert second.find("a", PIECE.facts) is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"format": 0}', "format 0"),
        ('{"format": 1}', "remove it"),
        ('{"format": 1, "pieces": {"a": {"rows": []}}}', "remove it"),
    ],
)
def test_a_file_of_another_version_is_told_at_once(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "book.json").write_text(text)
    with pytest.raises(UserError, match=named):
        Notebook(tmp_path / "book.json")


def bench(tmp_path: Path, pause: Pause | None = None) -> Workbench:
    dataset = data.synthetic("mnist", (1, 28, 28), count=16)
    setting = Setting(dataset=dataset, scale="short", device=torch.device("cpu"), runs=tmp_path, pause=pause or Pause())
    return Workbench("speed", setting)


def test_the_workbench_measures_once_and_pauses_behind_it(tmp_path: Path) -> None:
    asked: list[int] = []

    def measure() -> list[Row]:
        asked.append(1)
        return [{"series": "pixels", "seconds": 1.5}]

    with pytest.raises(Paused, match="pixels is measured"):
        bench(tmp_path, Pause(0.0)).of_data("pixels", {"batch": 10}, measure)
    found = bench(tmp_path, Pause(0.0)).of_data("pixels", {"batch": 10}, measure)
    assert (found, len(asked)) == ([{"series": "pixels", "seconds": 1.5}], 1)
    bench(tmp_path).of_data("pixels", {"batch": 20}, measure)
    assert len(asked) == 2


def test_the_environment_is_that_of_the_measurements(tmp_path: Path) -> None:
    book = bench(tmp_path).notebook
    here = bench(tmp_path)
    here.of_data("here", {}, list)
    elsewhere = Piece(here.notebook._pieces()["here"].facts, [], here.environments[0] | {"hardware": "NVIDIA H200"}, {})
    book.keep("there", elsewhere)
    again = bench(tmp_path)
    again.of_data("there", {}, list)
    assert again.results([], []).environment["hardware"] == "NVIDIA H200"
    again.of_data("here", {}, list)
    assert again.results([], []).environment["hardware"].startswith("NVIDIA H200, CPU")


def test_synthetic_data_decides_nothing(tmp_path: Path) -> None:
    (verdict,) = bench(tmp_path).results([], [Verdict("claim", True, "evidence", "paper")]).verdicts
    assert verdict == Verdict("claim", None, "evidence", "paper")
