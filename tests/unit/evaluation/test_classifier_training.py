"""Training of the classifier, on the embedded digits and on tones that stand for spoken digits."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from anytime import data
from anytime.core import storage
from anytime.core.errors import UserError
from anytime.core.progress import SilentReporter
from anytime.data.dataset import Labels
from anytime.data.loader import to_float, to_int16
from anytime.data.recordings import PADDING
from anytime.data.registry import load_labels
from anytime.data.synthetic import synthetic_audio
from anytime.evaluation import classifier_training
from anytime.evaluation.audio_augment import TRANSFORMS, augment_digits, augment_transforms, shuffle_segments
from anytime.evaluation.classifier_training import (
    ClassifierData,
    ClassifierTask,
    LabelledExamples,
    load_or_train_audio_features,
    load_or_train_image_classifier,
)
from anytime.metrics.classifier import AUDIO_CONFIG, AudioFeatures, Classifier, ClassifierConfig, ClassifierFeatures
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.fid import Moments, frechet_distance
from anytime.metrics.memorisation import nearest_distances

CPU = torch.device("cpu")
QUICK = ClassifierConfig(widths=(8, 16, 16, 16), epochs=3, batch=64)
QUICK_AUDIO = replace(
    AUDIO_CONFIG, widths=(8, 16, 16), strides=(2, 2, 2), features=16, dropout=0.0, epochs=24, batch=30, lr=1e-2
)
TIME = 4096

Digits = tuple[data.Dataset, Labels]


@pytest.fixture(scope="module")
def digits() -> Digits:
    return data.load("digits").subset(1500, 200), load_labels("digits").subset(1500, 200)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def network(digits: Digits, cache: Path) -> ClassifierFeatures:
    return load_or_train_image_classifier(*digits, QUICK, CPU, SilentReporter(), cache)


def test_an_image_classifier_learns(network: ClassifierFeatures, digits: Digits) -> None:
    dataset, labels = digits
    features = network(dataset.held_out)
    found = network.predict(features)
    assert found.accuracy(labels.test) == pytest.approx(network.report.accuracy)
    assert network.report.accuracy > 0.9 and network.report.examples == 200
    assert found.accuracy((labels.test + 1) % 10) < 0.1
    assert isinstance(network, FeatureNetwork)
    assert features.shape == (200, network.size) == (200, 128)
    metrics = network.extra_metrics(features, features)
    assert metrics["classified"] == found.classified > 0.5
    assert sum(metrics["class_fractions"]) == pytest.approx(1)


def test_training_leaves_the_global_generator_alone(digits: Digits, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    load_or_train_image_classifier(*digits, replace(QUICK, epochs=1), CPU, cache=tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_cache_is_keyed_by_data_and_config(
    network: ClassifierFeatures, digits: Digits, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []
    train = classifier_training._train
    monkeypatch.setattr(classifier_training, "_train", lambda *given: trained.append(given) or train(*given))
    (path,) = (cache / "classifiers").glob("*.safetensors")
    facts = storage.read_tensors(path)[1]
    assert facts["kind"] == "classifier 2" and facts["config"]["epochs"] == 3
    again = load_or_train_image_classifier(*digits, QUICK, CPU, cache=cache)
    assert (again.digest, again.report) == (network.digest, network.report) and not trained
    path.write_bytes(path.read_bytes()[:-9])
    assert load_or_train_image_classifier(*digits, QUICK, CPU, cache=cache).digest == network.digest, "trained again"
    assert len(trained) == 1
    other = load_or_train_image_classifier(*digits, replace(QUICK, seed=1, epochs=1), CPU, cache=cache)
    assert other.digest != network.digest and len(trained) == 2
    dataset, labels = digits
    load_or_train_image_classifier(
        dataset, replace(labels, train=labels.train.flip(0)), replace(QUICK, epochs=1), CPU, cache=cache
    )
    assert len(trained) == 3


class RecordingReporter(SilentReporter):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def say(self, text: str) -> None:
        self.texts.append(text)


def test_a_cache_that_cannot_be_written_costs_nothing_else(digits: Digits, tmp_path: Path) -> None:
    (tmp_path / "classifiers").write_text("in the way")
    messages = RecordingReporter()
    assert load_or_train_image_classifier(*digits, replace(QUICK, epochs=1), CPU, messages, tmp_path).size == 128
    assert "continuing without saving the classifier" in messages.texts[0]


def test_learning_rate(digits: Digits) -> None:
    x = LabelledExamples(torch.zeros(20, 1, 8, 8, dtype=torch.uint8), torch.zeros(20, dtype=torch.long))
    config = ClassifierConfig(epochs=10, batch=10, lr=1.0)
    task = ClassifierTask(Classifier((1, 8, 8), config), ClassifierData("x", x, x, x), CPU)
    assert [round(task.lr(step), 2) for step in (0, 1, 2, 11, 20)] == [0.5, 1.0, 1.0, 0.5, 0.0]


def spoken_digits(count: int, seed: int) -> LabelledExamples:
    """A rising tone for each digit, of random phase and length."""
    random = torch.Generator().manual_seed(seed)
    digits = torch.arange(count) % 10
    frequency = 100 * 1.5 ** digits[:, None, None]
    phase, length = torch.rand(2, count, 1, 1, generator=random)
    t = torch.arange(TIME)[None, None]
    turns = frequency * (t / 16_000) * (1 + 0.5 * t / TIME) + phase
    x = (0.14 * torch.sin(2 * torch.pi * turns) * 32767).round().to(torch.int16)
    return LabelledExamples(torch.where(t < TIME * (0.6 + 0.4 * length), x, PADDING), digits)


def test_audio_classifier_separates_digits_from_noise(tmp_path: Path) -> None:
    new = spoken_digits(200, 1)
    examples = ClassifierData("tones", spoken_digits(300, 0), new, new, augment_digits)
    classifier, report = classifier_training._load_or_train(examples, QUICK_AUDIO, CPU, None, tmp_path)
    network = AudioFeatures(classifier, report, CPU, spoken_digits=True)
    assert report.accuracy > 0.95

    def classified(x: Tensor) -> float:
        return network.predict(network(x)).classified

    generator = torch.Generator().manual_seed(2)
    noise = to_int16(0.1 * torch.randn(200, 1, TIME, generator=generator))
    assert classified(new.x) > 0.7
    assert classified(noise) < 0.1
    assert classified(torch.zeros(1, 1, TIME, dtype=torch.int16)) == 0
    assert classified(to_int16(shuffle_segments(to_float(new.x), TIME // 10, generator))) < classified(new.x) / 2
    known, held_out, far = (network(x) for x in (examples.train.x, new.x, noise))
    near, apart = (frechet_distance(Moments.of(known), Moments.of(other)) for other in (held_out, far))
    assert near < apart / 10
    assert nearest_distances(known, known).max() < 1e-3
    metrics = network.extra_metrics(held_out, known)
    assert metrics["nearest_p01"] <= metrics["nearest"] < network.extra_metrics(far, known)["nearest"] / 2
    assert sum(metrics["by_digit"]) == round(metrics["classified"] * 200) and min(metrics["by_digit"]) > 0


def test_unlabelled_audio_is_classified_by_transform(tmp_path: Path) -> None:
    phase = torch.rand(400, 1, 1, generator=torch.Generator().manual_seed(0))
    t = torch.arange(TIME) / TIME
    x = to_int16(0.14 * torch.sin(2 * torch.pi * (phase + 100 * t + 150 * t**2)) * (t < 0.7))
    held_out = classifier_training._transformed(x[300:])
    examples = ClassifierData(
        "t", LabelledExamples(x[:300], torch.zeros(300, dtype=torch.long)), held_out, held_out, augment_transforms
    )
    config = replace(QUICK_AUDIO, classes=len(TRANSFORMS), epochs=12)
    _, report = classifier_training._load_or_train(examples, config, CPU, None, tmp_path)
    assert report.accuracy > 3 / len(TRANSFORMS)


def test_audio_features_by_dataset(tmp_path: Path) -> None:
    dataset = synthetic_audio("tones", count=32)
    first = load_or_train_audio_features(dataset, CPU, smoke=True, cache=tmp_path)
    assert (first.distance, first.suffix, first.size) == ("frechet_digits", "_digits", 16)
    assert first.facts == {"accuracy": first.report.accuracy, "accuracy_examples": len(dataset.held_out)}
    again = load_or_train_audio_features(dataset, CPU, smoke=True, cache=tmp_path)
    assert torch.equal(again(dataset.held_out), first(dataset.held_out))
    other = load_or_train_audio_features(replace(dataset, labels=None), CPU, smoke=True, cache=tmp_path)
    assert other.distance == "frechet_audio"
    assert other.extra_metrics(torch.zeros(2, 16), torch.ones(2, 16)) == {"nearest": 4.0, "nearest_p01": 4.0}


def test_a_missing_classifier_is_refused_if_it_may_not_be_trained(digits: Digits, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no trained classifier of .*; copy there the one that"):
        load_or_train_image_classifier(*digits, QUICK, CPU, cache=tmp_path, train=False)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_processes_that_need_a_classifier_at_the_same_time_train_one(
    digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU two trainings differ, and so would the measurements made with them. A lock holds between threads as well."""
    trained, train = list[str](), classifier_training._train

    def slow(*given: Any) -> Any:
        trained.append(threading.current_thread().name)
        time.sleep(0.5)
        return train(*given)

    monkeypatch.setattr(classifier_training, "_train", slow)
    config, dataset = replace(QUICK, epochs=1), digits[0]
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(load_or_train_image_classifier, dataset, digits[1], config, CPU, cache=tmp_path) for _ in range(2)]
    assert len({each.result().digest for each in found}) == 1
    assert len(trained) == 1
