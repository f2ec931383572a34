from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from anytime.training import log
from anytime.training.log import MetricsLog
from anytime.training.loop import EpochMetrics


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


def test_a_resumed_log_begins_with_the_given_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsLog(path)
    epoch(metrics, 1)
    epoch(metrics, 2)
    before = path.read_bytes()
    epoch(metrics, 3)
    with path.open("a") as file:
        file.write('{"stage": "ord')  # killed while writing
    again = MetricsLog(path, log.read(path)[:2])
    assert path.read_bytes() == before
    epoch(again, 3)
    assert [line["epoch"] for line in log.read(path)] == [1, 2, 3]


def test_a_new_run_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("left over\n")
    MetricsLog(path)
    assert path.read_bytes() == b""


def without(key: str) -> bytes:
    return json.dumps({name: value for name, value in LINE.items() if name != key}).encode()


LINE = {"stage": "ordered", "epoch": 2, "step": 20, "train": {"loss": 1.0}, "validation": {"loss": 1.0}, "seconds": 0.5}
DAMAGED = {
    "cut": json.dumps(LINE).encode()[:40],
    "zeros": bytes(100),
    "bytes": b"\xff\xfe" + json.dumps(LINE).encode(),
    "number": b"3",
    "list": b"[]",
    "deep": b"[" * 100_000,
    "loss": json.dumps(LINE | {"train": {"loss": None}}).encode(),
    "parts": json.dumps(LINE | {"validation": [1.0]}).encode(),
    "step": json.dumps(LINE | {"step": "20"}).encode(),
} | {f"no {key}": without(key) for key in LINE}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_damaged_lines_are_skipped(damaged: bytes, tmp_path: Path) -> None:
    """After a crash of the machine a file may end in zeros or miss a part."""
    first, last = (json.dumps(LINE | {"epoch": number}).encode() for number in (1, 3))
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join((first, damaged, last, b"")))
    assert [line["epoch"] for line in log.read(path)] == [1, 3]
    path.write_bytes(first + b"\n" + damaged)
    assert [line["epoch"] for line in log.read(path)] == [1]
    assert log.read(tmp_path / "absent.jsonl") == []


def test_lines_are_on_disk_after_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, synced = MetricsLog(tmp_path / "metrics.jsonl"), list[int]()
    epoch(metrics, 1)
    monkeypatch.setattr(log.os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    metrics.sync()
    assert synced == [metrics.path.stat().st_ino]
