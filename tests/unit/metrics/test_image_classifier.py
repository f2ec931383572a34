from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.core import storage
from anytime.core.progress import SilentReporter
from anytime.data.labels import ImageLabels
from anytime.data.registry import load_labels
from anytime.evaluation.classifier_rows import classifier_rows
from anytime.metrics import image_classifier
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.image_classifier import (
    ClassifierConfig,
    ClassifierNetwork,
    confident_predictions,
    load_or_train_classifier,
)
from anytime.model import AnytimeModel

CPU = torch.device("cpu")
QUICK = ClassifierConfig(width=8, epochs=3, batch=64)


@pytest.fixture(scope="module")
def digits() -> tuple[data.Dataset, ImageLabels]:
    return data.load("digits").subset(1500, 200), load_labels("digits").subset(1500, 200)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def network(digits: tuple[data.Dataset, ImageLabels], cache: Path) -> ClassifierNetwork:
    return load_or_train_classifier(*digits, QUICK, CPU, SilentReporter(), cache)


def test_it_learns(network: ClassifierNetwork, digits: tuple[data.Dataset, ImageLabels]) -> None:
    dataset, labels = digits
    assert network.accuracy(dataset.held_out, labels.test) > 0.9
    wrong = (labels.test + 1) % 10
    assert network.accuracy(dataset.held_out, wrong) < 0.1
    assert isinstance(network, FeatureNetwork)
    assert network(dataset.held_out).shape == (200, network.size) == (200, 128)


def test_training_leaves_the_generator_alone(digits: tuple[data.Dataset, ImageLabels], tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    load_or_train_classifier(*digits, replace(QUICK, epochs=1), CPU, SilentReporter(), tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_it_is_kept_and_made_again_when_it_must_be(
    network: ClassifierNetwork, digits: tuple[data.Dataset, ImageLabels], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = []
    train = image_classifier._train
    monkeypatch.setattr(image_classifier, "_train", lambda *given: trainings.append(given) or train(*given))
    assert load_or_train_classifier(*digits, QUICK, CPU, SilentReporter(), cache).digest == network.digest
    assert not trainings
    (path,) = (cache / "classifiers").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    assert load_or_train_classifier(*digits, QUICK, CPU, SilentReporter(), cache).digest == network.digest, "the same on a CPU"
    assert len(trainings) == 1
    other = load_or_train_classifier(*digits, replace(QUICK, seed=1), CPU, SilentReporter(), cache)
    assert other.digest != network.digest
    assert len(trainings) == 2
    load_or_train_classifier(*digits, QUICK, CPU, SilentReporter(), cache)


def test_a_cache_that_cannot_be_written_costs_nothing_else(digits: tuple[data.Dataset, ImageLabels], tmp_path: Path) -> None:
    (tmp_path / "classifiers").write_text("in the way")
    messages = RecordingReporter()
    assert load_or_train_classifier(*digits, replace(QUICK, epochs=1), CPU, messages, tmp_path).size == 128
    assert "going on without keeping the classifier" in messages.texts[0]


class RecordingReporter(SilentReporter):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def say(self, text: str) -> None:
        self.texts.append(text)


def test_recognised_by_hand() -> None:
    probabilities = torch.zeros(4, 10)
    probabilities[0, 3], probabilities[1, 3], probabilities[2, 7], probabilities[3, 1] = 0.95, 0.99, 0.91, 0.9
    found = confident_predictions(probabilities)
    assert found.confident == 0.75, "0.9 itself is not above it"
    assert found.class_fractions == pytest.approx([0, 0, 0, 2 / 3, 0, 0, 0, 1 / 3, 0, 0])
    nothing = confident_predictions(torch.full((3, 10), 0.1))
    assert (nothing.confident, nothing.class_fractions) == (0.0, [0.0] * 10)


def test_rows(tiny: AnytimeModel, digits: tuple[data.Dataset, ImageLabels], network: ClassifierNetwork, cache: Path) -> None:
    dataset, labels = digits
    judge, real, *seen = classifier_rows(tiny, dataset, labels, (0.5, 1.0), 150, seed=3, config=QUICK, cache=cache)
    assert judge["series"] == "classifier"
    assert judge["accuracy"] == pytest.approx(network.accuracy(dataset.held_out, labels.test))
    assert real["series"] == "classified data"
    assert real["classified"] > 0.5, "real digits are recognised"
    assert max(real["class_fractions"]) < 0.25
    assert real["recall_classifier"] > 0.5
    assert [(row["series"], row["fraction"], row["codes"]) for row in seen] == [("classified", 0.5, 4), ("classified", 1.0, 8)]
    assert {(row["samples"], row["reference"], row["seed"]) for row in seen} == {(150, 200, 3)}
    probabilities = network.probabilities(network(sample_count(tiny, 150, 3)))
    assert seen[-1]["classified"] == pytest.approx(confident_predictions(probabilities).confident)
    assert all(row["recall_classifier"] < real["recall_classifier"] for row in seen), "an untrained model draws no digits"


def sample_count(model: AnytimeModel, count: int, seed: int) -> torch.Tensor:
    from anytime.core.random import derive

    return model.sample(count, seed=derive(seed, "evaluation", 0)).uint8()


def test_a_set_without_a_test_part_is_refused(
    tiny: AnytimeModel, digits: tuple[data.Dataset, ImageLabels], cache: Path
) -> None:
    dataset, labels = digits
    with pytest.raises(ValueError, match="digits has none"):
        classifier_rows(tiny, replace(dataset, test=None), labels, (1.0,), 10, cache=cache)


def test_its_file_says_what_it_was_trained_on(network: ClassifierNetwork, cache: Path) -> None:
    (path,) = (cache / "classifiers").iterdir()
    facts = storage.read_tensors(path)[1]
    assert facts["kind"] == "classifier 1"
    assert facts["config"]["epochs"] == 3
