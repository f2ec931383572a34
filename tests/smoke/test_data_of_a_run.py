"""A run goes on with the data it was begun on, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.errors import UserError
from anytime.training.recipes import recipe, scaled
from anytime.training.run import train


def test_other_data_is_refused(tmp_path: Path) -> None:
    config = scaled(recipe("digits", "best", (1, 28, 28)), "smoke")
    first = data.synthetic("digits", (1, 28, 28), seed=0)
    train(config, first, tmp_path / "run")
    again = train(config, first, tmp_path / "run")
    assert torch.isfinite(again.sample(1).data).all()
    other = replace(data.synthetic("digits", (1, 28, 28), seed=1), source="other strokes")
    with pytest.raises(UserError, match=r"begun on other data .* not other strokes"):
        train(config, other, tmp_path / "run")
