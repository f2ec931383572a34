"""Fixed seeds produce the codes, weights and numbers recorded in golden.json; `scripts/record_golden.py` writes it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())
FAST = ("mnist --recipe paper", "digits --recipe best")


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("record_golden", ROOT / "scripts" / "record_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(GOLDEN["codes"]))
def test_codes(name: str, recorder: ModuleType) -> None:
    model, _, seed = name.split()
    found = recorder.sampled_codes(model, int(seed))
    assert found == GOLDEN["codes"][name]
    assert found["first_rows_agree"]


def test_numbers_of_results(recorder: ModuleType) -> None:
    assert {name: compute() for name, compute in recorder.items("results").items()} == GOLDEN["results"]


@pytest.mark.parametrize("words", [w if w in FAST else pytest.param(w, marks=pytest.mark.slow) for w in GOLDEN["training"]])
def test_weights(words: str, recorder: ModuleType) -> None:
    now, recorded = recorder.environment(), GOLDEN["environment"]
    for what in ("torch", "capability"):
        if now[what] != recorded[what]:
            pytest.skip(f"recorded with {what} {recorded[what]}, this is {now[what]}: floats may be rounded differently")
    assert recorder.trained(words) == GOLDEN["training"][words]


def test_every_training_is_recorded(recorder: ModuleType) -> None:
    assert sorted(GOLDEN["training"]) == sorted(recorder.TRAININGS)
