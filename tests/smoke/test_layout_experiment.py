"""The layout experiment on two tiny runs, and its verdicts on synthetic numbers."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anytime import data
from anytime.core import results
from anytime.data import Dataset
from anytime.data.loader import to_float
from anytime.experiments import layout
from anytime.metrics.reconstruction import error_by_codes, error_by_row
from anytime.model import load

Runs = dict[str, Path]


@pytest.fixture
def runs(experiment_runs: Path) -> Runs:
    return {name: experiment_runs / f"digits-paper-smoke-{kind}-0" for name, kind in layout.LAYOUTS.items()}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return data.load("digits").subset(512, 128)


def test_layout(runs: Runs, dataset: Dataset) -> None:
    found = results.read(runs["channel"].parent / "results" / "layout" / "digits.json")
    for name, count, length in (("channel", 4, 16), ("spatial", 12, 49)):
        own = [row for row in found.rows if row["series"] == name and row.get("fraction") == 0.25 and "row" in row]
        assert [row["row"] for row in own] == list(range(28))
        assert {(row["codes"], row["length"]) for row in own} == {(count, length)}
        model = load(runs[name], "cpu")
        assert model.config.autoencoder.layout == name
        (error,) = error_by_codes(model, dataset.held_out, [count])
        assert np.mean([row["error"] for row in own]) == pytest.approx(error, rel=1e-5)


def test_figure_shows_samples(runs: Runs, dataset: Dataset) -> None:
    model, x = load(runs["channel"], "cpu"), dataset.held_out[:8]
    *_, row = layout.model_rows(model, x, [1.0] * 28)
    assert row["content"] == "samples"
    with Image.open(io.BytesIO(base64.b64decode(row["png"]))) as image:
        assert image.size == (2 + 8 * 30, 32)
        first = np.asarray(image)[2:30, 2:30]
    np.testing.assert_array_equal(first, model.sample(8, seed=0, codes=4).uint8()[0, 0].numpy())


def test_error_by_row_is_the_error_of_each_row(runs: Runs, dataset: Dataset) -> None:
    model, x = load(runs["spatial"], "cpu"), dataset.held_out[:7]
    pixels = to_float(x)
    x_hat = model.decode(model.encode(pixels)[:, :12])
    expected = [float((pixels[:, :, row] - x_hat[:, :, row]).square().mean()) for row in range(28)]
    assert error_by_row(model, x, 12) == pytest.approx(expected, rel=1e-5)


def test_mean_image_is_the_baseline(dataset: Dataset) -> None:
    few = replace(dataset, train=dataset.train[:10], test=dataset.held_out[:5])
    mean = to_float(few.train).mean(0)
    expected = (to_float(few.held_out) - mean).square().mean((0, 1, 3))
    assert layout.mean_image_errors(few) == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-9)


def rows(channel: tuple[float, float, float], spatial: tuple[float, float, float]) -> list[results.Row]:
    return [
        {"series": name, "fraction": 0.25, "region": region, "unexplained": share}
        for name, shares in (("channel", channel), ("spatial", spatial))
        for region, share in zip(layout.REGIONS, shares, strict=True)
    ]


@pytest.mark.parametrize(
    ("channel", "spatial", "expected"),
    [
        ((0.4, 0.5, 0.35), (0.8, 0.1, 1.1), [True, True, True, True]),
        ((0.4, 0.1, 0.6), (0.8, 0.1, 1.1), [False, True, True, False]),
        ((0.4, 0.5, 0.35), (0.3, 0.3, 0.3), [True, False, True, False]),
        ((0.4, 0.5, 0.45), (0.8, 0.7, 1.0), [True, True, False, True]),
    ],
)
def test_verdicts_follow_the_numbers(
    channel: tuple[float, float, float], spatial: tuple[float, float, float], expected: list[bool]
) -> None:
    assert [verdict.holds for verdict in layout.decide(rows(channel, spatial))] == expected
