"""scripts/measure_export.py: the fastest of requests in turns, and how they compare with the eager engine."""

from __future__ import annotations

import pytest

import measure_export


class Clockwork:
    """A runtime whose step takes `step` ms a row and whose decode takes 1 ms a row, after some slow requests."""

    def __init__(self, runtime: str, step: float) -> None:
        self.runtime, self.threads, self.step, self.calls = runtime, 1, step, 0

    def seconds(self, batch: int, count: int) -> float:
        self.calls += 1
        delay = 0.0 if self.calls > 4 else 99.0
        return delay + batch * (1 + self.step * count) / 1e3


def test_steps_are_what_a_request_takes_beside_its_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_export, "PAUSE", 0)
    contenders = [Clockwork("eager", 4.0), Clockwork("onnx", 2.0), Clockwork("aoti", 5.0)]
    rows = measure_export.measure(contenders, [3], length=8, rounds=3)  # type: ignore[arg-type]
    assert [row["step_ms"] for row in rows] == pytest.approx([12.0, 6.0, 15.0])
    assert [row["step_speedup"] for row in rows] == pytest.approx([1.0, 2.0, 0.8])
    assert [row["decode_speedup"] for row in rows] == pytest.approx([1.0, 1.0, 1.0])
    assert [verdict.holds for verdict in measure_export.verdicts(rows)] == [True, False]
