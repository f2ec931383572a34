"""A pause comes after a piece of work and a checkpoint, and the same call resumes from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anytime import data
from anytime.core import distributed
from anytime.core.pause import NEVER, Pause, Paused
from anytime.core.storage import read_tensors
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.config import RunConfig
from anytime.training.log import read
from anytime.training.run import train


def ticking() -> Callable[[], float]:
    """A clock that advances by one at every reading."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1
        return now

    return clock


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.synthetic_images("mnist", (1, 28, 28), count=64)


def config() -> RunConfig:
    small = with_scale(preset("mnist", "paper", (1, 28, 28)), "smoke")
    # No checkpoint but the pause's own: what is resumed must come from it.
    return replace(small, examples=64, checkpoint_seconds=1e9)


def test_a_pause_is_due_when_its_time_is_over() -> None:
    now = [10.0]
    pause = Pause(12.0, lambda: now[0])
    assert not pause.due
    pause.check("nothing yet")
    now[0] = 12.0
    assert pause.due
    with pytest.raises(Paused, match="half of it"):
        pause.check("half of it")
    assert not NEVER.due


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (5, ["ordered stage, step 1", "prior stage, step 2"]),
        (4, ["pretrain stage, step 4", "ordered stage, step 4", "prior stage, step 4"]),
    ],
)
def test_a_paused_run_resumes_to_the_same_bytes(dataset: data.Dataset, tmp_path: Path, steps: int, expected: list[str]) -> None:
    """Pause every `steps` steps: inside stages, at their last step and at the end."""
    train(config(), dataset, tmp_path / "whole")
    parts = []
    for _ in range(20):
        try:
            train(config(), dataset, tmp_path / "parts", pause=Pause(float(steps), ticking()))
        except Paused as pause:
            parts.append(str(pause))
            assert not (tmp_path / "parts" / "model").exists()
        else:
            break
    assert parts == expected
    whole, again = (read_tensors(tmp_path / name / "model" / "model.safetensors")[2] for name in ("whole", "parts"))
    assert again == whole
    lines = [
        [(line["stage"], line["epoch"]) for line in read(tmp_path / name / "metrics.jsonl")] for name in ("whole", "parts")
    ]
    assert lines[0] == lines[1]


def test_every_part_makes_progress(dataset: data.Dataset, tmp_path: Path) -> None:
    """A pause that is due at once still allows one step."""
    messages = []
    for _ in range(3):
        with pytest.raises(Paused) as pause:
            train(config(), dataset, tmp_path / "run", pause=Pause(0.0))
        messages.append(str(pause.value))
    assert messages == ["pretrain stage, step 1", "pretrain stage, step 2", "pretrain stage, step 3"]


def test_several_ranks_do_not_pause(dataset: data.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    with pytest.raises(ValueError, match="several ranks"):
        train(config(), dataset, tmp_path / "run", pause=Pause(0.0))
