"""What was measured is kept, and used only where everything it depends on is the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from anytime import data
from anytime.core.errors import UserError
from anytime.core.pause import Pause, Paused
from anytime.core.results import Row, Verdict
from anytime.experiments import speed
from anytime.experiments.cache import Notebook, Piece
from anytime.experiments.runner import Setting, Workbench
from anytime.recipes.presets import RunConfig, paper, recipe, scaled
from anytime.training.run_dir import now_called, what

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


def test_measurements_outlive_new_keys_of_a_config(tmp_path: Path) -> None:
    """A key that the config had not when a run was measured has its default; with another value it is another run."""
    config = scaled(paper("digits", (1, 28, 28)), "smoke")
    old = what(config)
    del old["tune"], old["pretrain"]["mirrored"], old["model"]["autoencoder"]["network"]
    notebook = Notebook(tmp_path / "kept.json")
    notebook.keep("ordered 0", Piece({"run": old}, [{"x": 1}], {}, {}))

    def found(now: RunConfig) -> bool:
        def update(facts: dict[str, Any]) -> dict[str, Any]:
            return {**facts, "run": now_called(facts["run"], now)}

        facts = {"run": what(now)}
        assert (notebook.find("ordered 0", facts, update) is not None) == notebook.holds("ordered 0", facts, update)
        return notebook.holds("ordered 0", facts, update)

    assert found(config)
    assert not found(replace(config, pretrain=replace(config.pretrain, mirrored=True)))
    assert notebook.find("ordered 0", {"run": what(config)}) is None
    notebook.keep("ordered 0", Piece({"run": {"no": "config"}}, [], {}, {}))
    assert not found(config)


def test_times_outlive_new_keys_of_the_networks() -> None:
    configs = [scaled(recipe("mnist", which, (1, 28, 28)), "smoke") for which in ("paper", "original")]
    today = {"networks": [what(config)["model"] for config in configs], "batch": 10}
    older = copy.deepcopy(today)
    del older["networks"][0]["autoencoder"]["network"], older["networks"][1]["autoencoder"]["quantizer"]["start"]
    assert older != today
    assert speed.updated(configs, older) == today
    older["networks"][0]["autoencoder"]["length"] = 15
    assert speed.updated(configs, older) != today
    assert speed.updated(configs, {"batch": 10}) == {"networks": [], "batch": 10}
