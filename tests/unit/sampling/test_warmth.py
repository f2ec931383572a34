"""Temperatures as a file beside the model, and in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anytime.core.errors import UserError
from anytime.sampling.warmth import FILE, Warmth, read_warmth, write_warmth

WARMTH = Warmth(examples=40, bits=(3.0, 5.0), temperature=(0.981, 1.044), fitted_bits=(2.998, 4.994))


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_warmth(tmp_path, "a" * 64, 2) is None
    write_warmth(tmp_path, "a" * 64, WARMTH)
    assert read_warmth(tmp_path, "a" * 64, 2) == WARMTH
    assert json.loads((tmp_path / FILE).read_text())["format"] == 1


@pytest.mark.parametrize(("owner", "length"), [("b" * 64, 2), ("a" * 64, 3)])
def test_another_models_are_refused(tmp_path: Path, owner: str, length: int) -> None:
    write_warmth(tmp_path, "a" * 64, WARMTH)
    with pytest.raises(UserError, match=r"temperatures.json is of another model .*; remove it"):
        read_warmth(tmp_path, owner, length)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": (1.0,)},
        {"temperature": (1.0, 0.0)},
        {"temperature": (1.0, float("nan"))},
        {"fitted_bits": (1.0, 1.0, 1.0)},
        {"bits": (), "temperature": (), "fitted_bits": ()},
    ],
)
def test_what_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^temperatures "):
        replace(WARMTH, **changes)


def test_in_words() -> None:
    lie = "fitted temperatures lie between 0.98 and 1.04 and would"
    assert WARMTH.text == f"{lie} lower the 4.0000 bits of a held-out code by 0.0040"
    assert replace(WARMTH, fitted_bits=(3.0, 5.1)).text == f"{lie} not lower the 4.0000 bits of a held-out code"
