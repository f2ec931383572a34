"""A run resumes only on the data that it was started on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.core.errors import UserError
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.run import train


def test_other_data_is_refused(tmp_path: Path) -> None:
    config = with_scale(preset("digits", "best", (1, 28, 28)), "smoke")
    first = data.synthetic_images("digits", (1, 28, 28), seed=0)
    train(config, first, tmp_path / "run")
    made = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    again = train(config, first, tmp_path / "run")
    assert torch.isfinite(again.sample(1).data).all()
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == made
    other = replace(data.synthetic_images("digits", (1, 28, 28), seed=1), source="other strokes")
    with pytest.raises(UserError, match=r"begun on other data .* not other strokes"):
        train(config, other, tmp_path / "run")


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    """Its last steps are not repeated: on a GPU they might round differently and change a model in use."""
    config = with_scale(preset("digits", "best", (1, 28, 28)), "smoke")
    dataset = data.synthetic_images("digits", (1, 28, 28))
    train(config, dataset, tmp_path / "run")
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        checkpoint.unlink()  # training again would start over and change the times in the metrics
    said: list[str] = []

    class Reporter:
        def stage(self, name: str, step: int, steps: int) -> None:
            said.append(name)

        def progress(self, step: int, losses: dict[str, float]) -> None:
            pass

        def say(self, text: str) -> None:
            said.append(text)

    train(config, dataset, tmp_path / "run", reporter=Reporter())
    assert len(said) == 1
    assert "finished already" in said[0]
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == metrics
