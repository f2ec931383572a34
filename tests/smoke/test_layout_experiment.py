"""The layout experiment on two tiny runs, and its verdicts on made-up numbers."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from anytime import data
from anytime.data import Dataset
from anytime.data.loader import to_float
from anytime.errors import UserError
from anytime.evaluation.reconstruction import error_by_codes, error_by_row
from anytime.experiments import layout, page, results
from anytime.experiments.runs import named_runs
from anytime.model import load

CPU = torch.device("cpu")
Runs = dict[str, Path]


@pytest.fixture
def runs(here: Callable[..., Any], once: Callable[..., Path]) -> Runs:
    def train(folder: Path) -> None:
        for name in layout.LAYOUTS:
            words = ("--recipe", "paper", "--layout", name, "--scale", "smoke", "--out", folder / name)
            assert here("train", "digits", *words).status == 0

    folder = once("layout-runs", train)
    return {name: folder / name for name in layout.LAYOUTS}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return data.load("digits").subset(256, 64)


def test_layout(runs: Runs, dataset: Dataset, tmp_path: Path) -> None:
    found = layout.compute(dataset, runs, CPU, "command")
    path = found.write(tmp_path)
    assert path == tmp_path / "layout" / "digits.json"
    assert results.read(path) == found
    assert [verdict.holds for verdict in found.verdicts] == [None] * 4  # a smoke run decides nothing
    for name, count, length in (("channel", 4, 16), ("spatial", 12, 49)):
        own = [row for row in found.rows if row["series"] == name and row.get("fraction") == 0.25 and "row" in row]
        assert [row["row"] for row in own] == list(range(28))
        assert {(row["codes"], row["length"]) for row in own} == {(count, length)}
        model = load(runs[name], "cpu")
        (error,) = error_by_codes(model, dataset.held_out, [count])
        assert np.mean([row["error"] for row in own]) == pytest.approx(error, rel=1e-5)
        (strip,) = (row["png"] for row in found.rows if row["series"] == name and row.get("what") == "samples")
        with Image.open(io.BytesIO(base64.b64decode(strip))) as picture:
            assert picture.size == (2 + 8 * 30, 32)
            first = np.asarray(picture)[2:30, 2:30]
        np.testing.assert_array_equal(first, model.sample(8, seed=0, codes=count).uint8()[0, 0].numpy())
    assert layout.draw(path).stat().st_size > 1000
    text = page.page(tmp_path, tmp_path / "page.md")
    assert "| series | whole | top quarter | bottom half |" in text
    assert "| spatial | " in text


def test_error_by_row_is_the_error_of_each_row(runs: Runs, dataset: Dataset) -> None:
    model, x = load(runs["spatial"], "cpu"), dataset.held_out[:7]
    pixels = to_float(x)
    x_hat = model.decode(model.encode(pixels)[:, :12])
    expected = [float((pixels[:, :, row] - x_hat[:, :, row]).square().mean()) for row in range(28)]
    assert error_by_row(model, x, 12) == pytest.approx(expected, rel=1e-5)


def test_the_mean_picture_is_the_yardstick(dataset: Dataset) -> None:
    few = replace(dataset, train=dataset.train[:10], test=dataset.held_out[:5])
    mean = to_float(few.train).mean(0)
    expected = (to_float(few.held_out) - mean).square().mean((0, 1, 3))
    assert layout.mean_picture_errors(few) == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-9)


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


def test_runs_that_cannot_be_compared(runs: Runs, dataset: Dataset) -> None:
    with pytest.raises(UserError, match="layout compares --runs channel=RUN spatial=RUN, not channel"):
        layout.compute(dataset, {"channel": runs["channel"]}, CPU)
    swapped = {"channel": runs["spatial"], "spatial": runs["channel"]}
    with pytest.raises(UserError, match=r"holds a spatial-wise model; train one with --layout channel"):
        layout.compute(dataset, swapped, CPU)
    with pytest.raises(UserError, match="takes data of shape"):
        layout.compute(data.synthetic("cifar10", (3, 32, 32), count=16), runs, CPU)
    with pytest.raises(UserError, match=r"--runs 'channel' must look like SERIES=RUN"):
        named_runs(["channel"])
