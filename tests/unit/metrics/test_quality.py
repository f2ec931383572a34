from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anytime import data
from anytime.metrics.feature_stats import FeatureStatistics, compute_statistics, samples
from anytime.metrics.features import RandomNetwork
from anytime.metrics.quality import (
    data_row,
    distance_name,
    quality_row,
    reconstruction_rows,
    reference_statistics,
    sample_rows,
)
from anytime.model import AnytimeModel

FRACTIONS = (0.25, 1.0)
NUMBERS = {"frechet_random", "kid_random", "kid_sd_random", "precision_random", "recall_random"}


@pytest.fixture(scope="module")
def network() -> RandomNetwork:
    return RandomNetwork(torch.device("cpu"))


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.load("digits").subset(300, 100)


@pytest.fixture(scope="module")
def real(network: RandomNetwork, dataset: data.Dataset, tmp_path_factory: pytest.TempPathFactory) -> FeatureStatistics:
    return reference_statistics(dataset.train, network, tmp_path_factory.mktemp("cache"))


def test_rows_of_samples(network: RandomNetwork, tiny: AnytimeModel, real: FeatureStatistics, tmp_path: Path) -> None:
    rows = sample_rows(tiny, FRACTIONS, 120, real, network, seed=3, folder=tmp_path)
    assert [(row["series"], row["fraction"], row["codes"]) for row in rows] == [("samples", 0.25, 2), ("samples", 1.0, 8)]
    for row in rows:
        assert row.keys() >= NUMBERS
        assert "fid" not in row
        assert "warning" not in row
        assert (row["samples"], row["reference"], row["kept"], row["seed"]) == (120, 300, 120, 3)
        assert row["network"] == "random"
    found = compute_statistics(samples("samples", tiny, 120, [2, 8], 3), network)
    assert [quality_row(known, real, network)["frechet_random"] for known in found] == [row["frechet_random"] for row in rows]
    assert sample_rows(tiny, FRACTIONS, 120, real, network, seed=3) == rows
    assert sample_rows(tiny, FRACTIONS, 120, real, network, seed=4) != rows


def test_rows_of_reconstructions(
    network: RandomNetwork, tiny: AnytimeModel, real: FeatureStatistics, dataset: data.Dataset
) -> None:
    rows = reconstruction_rows(tiny, dataset.held_out, FRACTIONS, real, network)
    assert [(row["series"], row["codes"], row["samples"]) for row in rows] == [
        ("reconstructions", 2, 100),
        ("reconstructions", 8, 100),
    ]
    assert rows[0]["frechet_random"] != rows[1]["frechet_random"]


def test_held_out_data_is_better_than_samples_of_an_untrained_model(
    network: RandomNetwork, tiny: AnytimeModel, real: FeatureStatistics, dataset: data.Dataset, tmp_path: Path
) -> None:
    row = data_row(dataset.held_out, real, network, tmp_path)
    (sampled,) = sample_rows(tiny, [1.0], 120, real, network)
    assert row["series"] == "held-out data"
    assert 10 * row["frechet_random"] < sampled["frechet_random"]
    assert 10 * abs(row["kid_random"]) < sampled["kid_random"]
    assert row["precision_random"] > 0.5 > sampled["precision_random"]


def test_fewer_samples_than_features_give_a_warning(
    network: RandomNetwork, tiny: AnytimeModel, real: FeatureStatistics
) -> None:
    (row,) = sample_rows(tiny, [1.0], 64, real, network)
    assert row["warning"] == "frechet_random is too high: 64 samples for 64 features"
    (row,) = sample_rows(tiny, [1.0], 65, real, network)
    assert "warning" not in row


def test_two_samples_are_enough(network: RandomNetwork, tiny: AnytimeModel, real: FeatureStatistics) -> None:
    (row,) = sample_rows(tiny, [1.0], 2, real, network)
    assert all(isinstance(row[name], float) and row[name] == row[name] for name in NUMBERS)


def test_distance_names() -> None:
    assert distance_name([{"fid": 1.0}, {"frechet_classifier": 1.0}]) == "fid"
    assert distance_name([{"frechet_digits": 1.0}]) == "frechet_digits"
    assert distance_name([]) == "frechet_random"
