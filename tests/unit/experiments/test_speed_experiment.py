"""Verdicts about seconds by code length, from synthetic numbers."""

from __future__ import annotations

from typing import Any

import pytest

from anytime.core.results import Row
from anytime.experiments import speed

EAGER = {0.2: 130.0, 0.4: 250.0, 0.6: 372.0, 0.8: 490.0, 1.0: 610.0}


def rows(
    times: dict[float, float] = EAGER, *, decode: float = 24.0, original: float = 900.0, pixels: float = 7000.0
) -> list[Row]:
    own = [
        {
            "series": "anytime, eager",
            "engine": "eager",
            "fraction": fraction,
            "codes": round(100 * fraction),
            "images": 100_000,
            "seconds": seconds,
            "decode_seconds": decode,
            "decode_fraction": decode / seconds,
        }
        for fraction, seconds in times.items()
    ]
    others = {"original VQ-VAE": original, "pixel space": pixels}
    marks: list[Row] = [
        {"series": name, "engine": "eager", "fraction": 1.0, "images": 100_000, "seconds": seconds}
        for name, seconds in others.items()
    ]
    return own + marks


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [True, True, True, True, True]),
        ({"times": EAGER | {0.4: 500.0, 0.6: 380.0}}, [False, True, True, True, True]),
        ({"decode": 62.0}, [True, False, True, True, True]),
        ({"original": 600.0}, [True, True, False, True, True]),
        ({"pixels": 6000.0}, [True, True, True, False, True]),
        ({"times": EAGER | {0.6: 400.0}}, [True, True, True, True, False]),
    ],
)
def test_verdicts_follow_the_numbers(changes: dict[str, Any], expected: list[bool]) -> None:
    assert [verdict.holds for verdict in speed.decide(rows(**changes))] == expected


def test_faster_engine_is_reported_but_decides_nothing() -> None:
    quick = [row | {"series": "anytime, cuda", "seconds": 12.0} for row in rows() if row["series"] == "anytime, eager"]
    verdicts = speed.decide(rows() + quick)
    assert [verdict.holds for verdict in verdicts] == [True] * 5
    assert "the cuda engine takes 12.0 s, saving 0%" in verdicts[4].evidence
