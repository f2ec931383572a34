from __future__ import annotations

import pytest
import torch

from anytime.metrics.classifier import AUDIO_CONFIG, Classifier, ClassifierConfig, Predictions, to_maps

AUDIO = torch.zeros(2, 1, 4096, dtype=torch.int16)
IMAGES = torch.full((2, 1, 28, 28), 255, dtype=torch.uint8)


def test_predictions_count_confident_examples_of_a_class() -> None:
    labels, confidence = torch.tensor([3, 3, 7, 10, 1]), torch.tensor([0.95, 0.99, 0.91, 0.99, 0.9])
    found = Predictions(labels, confidence, 10)
    assert found.classified == pytest.approx(3 / 5), "neither the negative class nor a confidence of 0.9 counts"
    assert found.by_class == [0, 0, 0, 2, 0, 0, 0, 1, 0, 0]
    true_labels = torch.tensor([3, 4, 7, 0, 1])
    assert found.accuracy(true_labels) == pytest.approx(3 / 5)
    assert found.confident_accuracy(true_labels) == pytest.approx(2 / 3)
    assert Predictions(torch.tensor([10]), torch.tensor([1.0]), 10).confident_accuracy(torch.tensor([1])) is None


def test_silence_is_zero_and_images_are_in_the_unit_interval() -> None:
    assert to_maps(AUDIO).shape == (2, 1, 80, 17)
    assert not to_maps(AUDIO).any()
    assert torch.equal(to_maps(IMAGES), torch.ones(2, 1, 28, 28))


@pytest.mark.parametrize(("config", "x", "classes"), [(ClassifierConfig(), IMAGES, 10), (AUDIO_CONFIG, AUDIO, 11)])
def test_weights_are_a_function_of_the_seed(config: ClassifierConfig, x: torch.Tensor, classes: int) -> None:
    maps = to_maps(x)
    first, second, other = (Classifier(tuple(maps.shape[1:]), config) for _ in range(3))
    for classifier, seed in ((first, 0), (second, 0), (other, 1)):
        classifier.init_weights(seed)
    weights = [classifier.eval().state_dict() for classifier in (first, second, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["head.weight"], weights[2]["head.weight"])
    assert first(maps).shape == (2, classes)


def test_audio_features_do_not_depend_on_the_number_of_frames() -> None:
    classifier = Classifier((1, 80, 17), AUDIO_CONFIG).eval()
    assert classifier.embed(torch.zeros(1, 1, 80, 17)).shape == classifier.embed(torch.zeros(1, 1, 80, 61)).shape == (1, 128)
