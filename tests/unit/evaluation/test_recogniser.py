"""The recogniser of spoken digits, on tones that stand for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from anytime.data.loader import to_float
from anytime.data.recordings import ABSENT
from anytime.errors import UserError
from anytime.evaluation.recogniser import (
    Recogniser,
    RecogniserConfig,
    Training,
    accuracy,
    frechet_digits,
    load_recogniser,
    nearest_distances,
    recognise,
    train_recogniser,
)

CONFIG = RecogniserConfig(widths=(8, 16, 16), features=16, dropout=0.0)
TIME = 4096


def spoken(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A rising tone for each digit, further apart than another voice is, of random phase and length."""
    random = torch.Generator().manual_seed(seed)
    digits = torch.arange(count) % 10
    frequency = 100 * 1.5 ** digits[:, None, None]
    phase, length = torch.rand(2, count, 1, 1, generator=random)
    t = torch.arange(TIME)[None, None]
    turns = frequency * (t / 16_000) * (1 + 0.5 * t / TIME) + phase
    x = (0.14 * torch.sin(2 * torch.pi * turns) * 32767).round().to(torch.int16)
    return torch.where(t < TIME * (0.6 + 0.4 * length), x, ABSENT), digits


@pytest.fixture(scope="module")
def trained() -> Recogniser:
    return train_recogniser(*spoken(300, 0), Training(epochs=16, batch=30, rate=1e-2, noise=0.003), CONFIG)


def test_it_learns_digits_it_has_not_heard(trained: Recogniser) -> None:
    assert accuracy(trained, *spoken(100, 1)) > 0.95
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert accuracy(Recogniser(CONFIG), *spoken(100, 1)) < 0.5


def test_training_is_a_function_of_the_seed() -> None:
    few = Training(epochs=1, batch=20)
    first, again = (train_recogniser(*spoken(40, 0), few, CONFIG).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_real_digits_are_recognised_and_close_and_noise_is_far(trained: Recogniser) -> None:
    known, new = (recognise(trained, to_float(spoken(200, seed)[0])) for seed in (0, 1))
    noise = recognise(trained, 0.1 * torch.randn(200, 1, TIME, generator=torch.Generator().manual_seed(2)))
    assert new.recognised > 0.7
    assert noise.recognised < 0.1
    assert min(new.by_digit) > 0
    assert sum(new.by_digit) == round(new.recognised * 200)
    assert frechet_digits(known, known) == pytest.approx(0, abs=1e-6)
    assert frechet_digits(known, new) < frechet_digits(known, noise) / 10
    assert nearest_distances(known, known).max() < 1e-3
    assert nearest_distances(new, known).mean() < nearest_distances(noise, known).mean() / 2


def test_saved_and_loaded_it_hears_the_same(trained: Recogniser, tmp_path: Path) -> None:
    trained.save(tmp_path / "r.safetensors")
    x = to_float(spoken(20, 3)[0])
    loaded = load_recogniser(tmp_path / "r.safetensors", CONFIG)
    assert torch.equal(recognise(loaded, x).confidence, recognise(trained, x).confidence)
    with pytest.raises(UserError, match="holds no recogniser"):
        load_recogniser(tmp_path / "r.safetensors")


def test_a_schedule_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="epochs"):
        Training(epochs=0)
