from __future__ import annotations

import pytest
import torch

from anytime.metrics.features import FeatureNetwork, RandomNetwork, to_rgb


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randint(256, (9, 3, 28, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_random_network_is_always_the_same(x: torch.Tensor) -> None:
    torch.manual_seed(1)
    first = RandomNetwork(torch.device("cpu"))
    torch.manual_seed(2)
    second = RandomNetwork(torch.device("cpu"))
    assert isinstance(first, FeatureNetwork)
    assert first.digest == second.digest
    assert torch.equal(first(x), second(x))
    assert first.distance == "frechet_random"


def test_features_differ_between_images(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    network = RandomNetwork(torch.device("cpu"))
    features = network(x)
    assert features.shape == (9, network.size)
    assert torch.pdist(features).min() > 0.01
    assert 0.05 < float(features.std()) < 2
    monkeypatch.setattr(RandomNetwork, "batch", 4)
    torch.testing.assert_close(network(x), features)


def test_grey_images_become_rgb(x: torch.Tensor) -> None:
    grey = x[:, :1]
    assert torch.equal(to_rgb(grey), grey.repeat(1, 3, 1, 1))
    assert torch.equal(to_rgb(x), x)
    network = RandomNetwork(torch.device("cpu"))
    assert torch.equal(network(grey), network(grey.repeat(1, 3, 1, 1)))
