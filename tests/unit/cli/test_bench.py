from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from anytime.core.results import read
from anytime.model import AnytimeModel, _tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return AnytimeModel(_tiny()).save(tmp_path_factory.mktemp("bench") / "tiny")


def test_a_table_and_a_file(model: Path, tmp_path: Path, command: Callable[..., Any]) -> None:
    words = [
        "--batches",
        "1,3",
        "--every",
        "4",
        "--repeats",
        "3",
        "--engines",
        "eager",
        "--hf-baseline",
        "none",
        "--device",
        "cpu",
    ]
    outcome = command("bench", "sampling", str(model), *words, "--out", str(tmp_path))
    assert outcome.status == 0, outcome.err
    head, *table, last = outcome.out.strip().splitlines()
    assert "samples/s" in head
    assert len(table) == 9, "four rows, the start-up, of each batch what decoding adds, and two bounds of the start-up"
    assert all("decoding adds less than a tenth" in line for line in table[5:7])
    assert last == str(tmp_path / "sampling" / "tiny-cpu.json")
    *rows, start = read(Path(last)).rows
    assert (start["series"], start["codes"], start["repeats"]) == ("start-up", 8, 3)
    assert 0 < start["load_seconds"] + start["sample_seconds"] < start["seconds"]
    for line, most in zip(table[7:], (1.0, 0.5), strict=True):
        assert line.startswith("holds" if start["seconds"] <= most else "does not hold")
        assert f"beyond `import torch`: at most {most:g} s" in line
    assert [(r["batch"], r["codes"]) for r in rows] == [(1, 4), (1, 8), (3, 4), (3, 8)]
    for row in rows:
        assert 0 < row["p50"] <= row["p95"]
        assert row["per_second"] == pytest.approx(row["batch"] / row["p50"])
        assert row["times_roofline"] > 1, "nothing is faster than physics"


def test_networks_of_a_recipe_with_random_weights(
    tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "--batches",
        "1",
        "--every",
        "16",
        "--repeats",
        "1",
        "--engines",
        "eager",
        "--hf-baseline",
        "none",
        "--device",
        "cpu",
    ]
    words = ["bench", "sampling", "mnist", "--recipe", "best", *words, "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["anytime", *words])
    outcome = command(*words)
    assert outcome.status == 0, outcome.err
    results = read(tmp_path / "sampling" / "mnist-best-cpu.json")
    assert results.schedule.startswith("random weights")
    assert results.command.startswith("anytime bench sampling mnist --recipe best")
    assert results.command.endswith("--out PATH"), "it can be given anywhere"
    assert [(row["series"], row["codes"]) for row in results.rows] == [("anytime eager fp32", 16), ("start-up", 16)]


def test_recipe_is_refused_for_a_trained_model(model: Path, tmp_path: Path, command: Callable[..., Any]) -> None:
    outcome = command("bench", "sampling", str(model), "--recipe", "best", "--device", "cpu", "--out", str(tmp_path))
    assert outcome.status == 2
    assert "--recipe chooses networks with random weights" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cifar"], "did you mean 'cifar10'"),
        (["mnist", "--batches", "0"], "--batches '0' must be whole numbers"),
        (["mnist", "--batches", "x"], "--batches 'x' must be whole numbers"),
        (["mnist", "--threads", "0"], "--threads must be at least 1"),
        (["mnist", "--every", "0"], "--every must be at least 1"),
        (["mnist", "--repeats", "-4"], "--repeats must be at least 1"),
        (["mnist", "--engines", "eager:fp64"], "'fp64' is not a precision"),
        (["mnist", "--engines", "cuda", "--hf-baseline", "none"], "engine cuda needs an NVIDIA GPU"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], said: str, tmp_path: Path, command: Callable[..., Any]) -> None:
    outcome = command("bench", "sampling", *words, "--device", "cpu", "--out", str(tmp_path))
    assert outcome.status == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
