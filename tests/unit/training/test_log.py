from __future__ import annotations

import json
from pathlib import Path

import pytest

from anytime.training import log
from anytime.training.log import MetricsLog
from anytime.training.loop import EpochMetrics


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_tensorboard", lambda directory: None)


def epoch(metrics: MetricsLog, number: int) -> None:
    validation = {"loss": 2 / number, "perplexity": 3.0}
    metrics.append("ordered", EpochMetrics(number, 10 * number, {"loss": 1 / number}, validation, 0.5))


def test_one_line_per_epoch(tmp_path: Path) -> None:
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    for number in (1, 2, 3):
        epoch(metrics, number)
    lines = log.read(metrics.path)
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert lines[1] == {
        "stage": "ordered",
        "epoch": 2,
        "step": 20,
        "train": {"loss": 0.5},
        "validation": {"loss": 1.0, "perplexity": 3.0},
        "seconds": 0.5,
    }
    assert metrics.size == metrics.path.stat().st_size > 0


def test_resuming_cuts_back_to_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsLog(path)
    epoch(metrics, 1)
    epoch(metrics, 2)
    size, before = metrics.size, path.read_bytes()
    epoch(metrics, 3)
    with path.open("a") as file:
        file.write('{"stage": "ord')  # killed while writing
    again = MetricsLog(path, size)
    assert path.read_bytes() == before
    epoch(again, 3)
    assert [line["epoch"] for line in log.read(path)] == [1, 2, 3]


def test_a_file_that_was_lost_does_not_come_back_as_zeros(tmp_path: Path) -> None:
    metrics = MetricsLog(tmp_path / "metrics.jsonl", 100)
    assert metrics.size == 0
    epoch(metrics, 4)
    assert [line["epoch"] for line in log.read(metrics.path)] == [4]


def test_a_new_run_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("left over\n")
    assert MetricsLog(path).size == 0
    assert log.read(path) == []


def test_reading_leaves_out_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"epoch": 1}) + "\n" + '{"epoch": 2')
    assert log.read(path) == [{"epoch": 1}]
    assert log.read(tmp_path / "absent.jsonl") == []
