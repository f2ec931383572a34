"""The network that listens, on tones that stand for spoken digits, and where it is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from anytime.core.errors import UserError
from anytime.data.loader import to_float, to_int16
from anytime.data.recordings import PADDING
from anytime.data.synthetic import synthetic_audio
from anytime.metrics import audio_classifier_training
from anytime.metrics import audio_features as ears_module
from anytime.metrics.audio_classifier import (
    AudioClassifier,
    AudioClassifierConfig,
    AudioPredictions,
    accuracy,
    features_of,
    nearest_distances,
    recognised,
)
from anytime.metrics.audio_classifier_training import (
    TRANSFORMS,
    AudioClassifierTraining,
    apply_transforms,
    sample_transforms,
    shuffle_segments,
    train_audio_classifier,
)
from anytime.metrics.audio_features import load_or_train_audio_features
from anytime.metrics.fid import Moments, frechet_distance

CONFIG = AudioClassifierConfig(widths=(8, 16, 16), features=16, dropout=0.0)
TIME = 4096


def spoken_digits(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A rising tone for each digit, further apart than another voice is, of random phase and length."""
    random = torch.Generator().manual_seed(seed)
    digits = torch.arange(count) % 10
    frequency = 100 * 1.5 ** digits[:, None, None]
    phase, length = torch.rand(2, count, 1, 1, generator=random)
    t = torch.arange(TIME)[None, None]
    turns = frequency * (t / 16_000) * (1 + 0.5 * t / TIME) + phase
    x = (0.14 * torch.sin(2 * torch.pi * turns) * 32767).round().to(torch.int16)
    return torch.where(t < TIME * (0.6 + 0.4 * length), x, PADDING), digits


@pytest.fixture(scope="module")
def trained() -> AudioClassifier:
    return train_audio_classifier(
        *spoken_digits(300, 0), AudioClassifierTraining(epochs=24, batch=30, lr=1e-2, noise=0.003), CONFIG
    )


def test_it_learns_digits_it_has_not_heard(trained: AudioClassifier) -> None:
    assert accuracy(trained, *spoken_digits(100, 1)) > 0.95
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert accuracy(AudioClassifier(CONFIG), *spoken_digits(100, 1)) < 0.5


def test_training_is_a_function_of_the_seed() -> None:
    few = AudioClassifierTraining(epochs=1, batch=20)
    first, again = (train_audio_classifier(*spoken_digits(40, 0), few, CONFIG).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_real_digits_are_recognised_and_close_and_noise_is_far(trained: AudioClassifier) -> None:
    known, new = (features_of(trained, spoken_digits(200, seed)[0]) for seed in (0, 1))
    noise = features_of(trained, to_int16(0.1 * torch.randn(200, 1, TIME, generator=torch.Generator().manual_seed(2))))
    heard = recognised(trained, new)
    assert heard.recognised > 0.7
    silence, pieces = (
        torch.zeros(1, 1, TIME, dtype=torch.int16),
        to_int16(shuffle_segments(to_float(spoken_digits(200, 1)[0]), TIME // 10)),
    )
    assert recognised(trained, noise).recognised < 0.1
    assert recognised(trained, features_of(trained, silence)).recognised == 0
    assert recognised(trained, features_of(trained, pieces)).recognised < heard.recognised / 2
    assert min(heard.by_digit) > 0
    assert sum(heard.by_digit) == round(heard.recognised * 200)
    near, far = (frechet_distance(Moments.of(known), Moments.of(other)) for other in (new, noise))
    assert near < far / 10
    assert nearest_distances(known, known).max() < 1e-3
    assert nearest_distances(new, known).mean() < nearest_distances(noise, known).mean() / 2


def test_right_of_all_and_right_when_sure() -> None:
    heard = AudioPredictions(torch.tensor([1, 2, 10, 3]), torch.tensor([0.95, 0.95, 0.99, 0.5]), 10)
    assert heard.recognised == 0.5, "no digit at all and an unsure one do not count"
    assert heard.accuracy_of(torch.tensor([1, 0, 4, 3])) == 0.5
    assert heard.confident_accuracy(torch.tensor([1, 0, 4, 3])) == 0.5
    assert AudioPredictions(torch.tensor([10]), torch.tensor([1.0]), 10).confident_accuracy(torch.tensor([1])) is None


def test_pieces_change_their_places_alone() -> None:
    x = torch.arange(2.0 * 103).view(2, 1, 103)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = shuffle_segments(x, 20)
    assert torch.equal(y[..., 100:], x[..., 100:]), "what is left over stays"
    before, after = (z[..., :100].view(2, 5, 20) for z in (x, y))
    assert not torch.equal(before, after)
    for row in range(2):
        assert sorted(map(tuple, after[row].tolist())) == list(map(tuple, before[row].tolist()))


@pytest.mark.parametrize(("spoken_digits", "noisy"), [(True, 4), (False, 10)])
def test_a_sixth_become_negatives(spoken_digits: bool, noisy: int) -> None:
    x, labels = torch.randn(60, 1, 1000, generator=torch.Generator().manual_seed(0)).cumsum(2), torch.arange(60) % 10
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y, told = audio_classifier_training._with_negatives(x, labels, 10, 0, spoken_digits=spoken_digits)
    assert told.tolist() == [10] * 10 + labels[10:].tolist() and labels[0] == 0, "the given labels are left as they are"
    assert torch.equal(y[10:], x[10:])
    if spoken_digits:
        assert torch.equal(y[:3], x[:3].flip(2))
        assert all(torch.equal(y[row].sort().values, x[row].sort().values) for row in range(3, 6)), "in pieces"
    assert (y[10 - noisy : 10].square().mean(2).sqrt() <= 0.2001).all(), "noise of its own loudness"


def test_transforms() -> None:
    x = to_float(spoken_digits(50, 0)[0])
    heard = apply_transforms(x, torch.arange(50) % len(TRANSFORMS))
    assert torch.equal(heard[0], x[0])
    assert torch.equal(heard[1], x[1].flip(1))
    assert torch.equal(heard[2, :, : TIME // 2], x[2, :, TIME // 2 :])
    assert not heard[3, :, 3 * TIME // 4 + 1 :].any(), "a third faster, it ends sooner"
    assert heard[4, :, :TIME].any() and not torch.equal(heard[4], x[4])
    assert set(sample_transforms(1000, 0, 0).tolist()) == set(range(len(TRANSFORMS)))


def test_unlabelled_audio_is_classified_by_transform() -> None:
    config = replace(CONFIG, classes=len(TRANSFORMS))
    phase = torch.rand(400, 1, 1, generator=torch.Generator().manual_seed(0))
    t = torch.arange(TIME) / TIME
    rising = 0.14 * torch.sin(2 * torch.pi * (phase + 100 * t + 150 * t**2)) * (t < 0.7)
    x = to_int16(rising)
    network = train_audio_classifier(x[:300], None, AudioClassifierTraining(epochs=12, batch=30, lr=1e-2), config)
    labels = sample_transforms(100, 7, 7)
    changed = to_int16(apply_transforms(to_float(x[300:]), labels))
    assert accuracy(network, changed, labels) > 3 / len(TRANSFORMS)


def test_it_is_trained_once_and_kept_with_its_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = synthetic_audio("tones", count=32)
    first = load_or_train_audio_features(dataset, torch.device("cpu"), smoke=True, cache=tmp_path)
    assert (first.distance, first.suffix, first.size) == ("frechet_digits", "_digits", 16)
    assert 0 <= first.accuracy <= 1 and first.examples == len(dataset.held_out)
    [path] = (tmp_path / "audio_features").iterdir()
    monkeypatch.setattr(ears_module, "train_audio_classifier", None)  # training again would now fail
    again = load_or_train_audio_features(dataset, torch.device("cpu"), smoke=True, cache=tmp_path)
    assert again == replace(first, recogniser=again.recogniser)
    assert torch.equal(again(dataset.held_out), first(dataset.held_out))
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-1])
    assert load_or_train_audio_features(dataset, torch.device("cpu"), smoke=True, cache=tmp_path).digest == first.digest, (
        "made again"
    )
    silent = replace(dataset, labels=None)
    assert load_or_train_audio_features(silent, torch.device("cpu"), smoke=True, cache=tmp_path).distance == "frechet_audio"


def test_a_schedule_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="epochs"):
        AudioClassifierTraining(epochs=0)
