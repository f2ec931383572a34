"""Grids and distances by code length of a tiny model, and verdicts from synthetic numbers."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from anytime.core.results import Row
from anytime.experiments import samples
from anytime.model import AnytimeModel


def test_rows_hold_sampled_codes(tiny: AnytimeModel) -> None:
    *rows, codes_row = samples.model_rows(tiny, 5, 30)
    distances, grids = rows[::2], rows[1::2]
    assert [(row["fraction"], row["codes"]) for row in grids] == [(0.25, 2), (0.5, 4), (0.75, 6), (1.0, 8)]
    codes = torch.tensor([[int(code) for code in text.split()] for text in codes_row["sampled_codes"]])
    expected = tiny.sample(30, seed=5)
    assert torch.equal(codes, expected.codes[: samples.SHOWN])
    x = tiny.decode(codes[:, :2])
    with Image.open(io.BytesIO(base64.b64decode(grids[0]["png"]))) as image:
        assert image.size == (2 + 8 * 30, 2 + 3 * 30)
        np.testing.assert_array_equal(np.asarray(image)[2:30, 2:30], (x[0, 0] * 255).round().byte().numpy())
    short = tiny.decode(expected.codes[:, :2])
    assert distances[0]["distance"] == pytest.approx(float((short - expected.data).square().mean()), rel=1e-5)
    assert distances[-1]["distance"] == 0.0


def rows(ordered: tuple[float, ...], unordered: tuple[float, ...]) -> list[Row]:
    return [
        {"series": variant, "fraction": fraction, "distance": distance}
        for variant, distances in (("ordered", ordered), ("unordered", unordered))
        for fraction, distance in zip(samples.GRID_FRACTIONS, distances, strict=True)
    ]


@pytest.mark.parametrize(
    ("ordered", "unordered", "expected"),
    [
        ((0.02, 0.01, 0.005, 0.0), (0.09, 0.05, 0.02, 0.0), [True, True]),
        ((0.02, 0.03, 0.005, 0.0), (0.09, 0.05, 0.02, 0.0), [False, True]),
        ((0.02, 0.01, 0.005, 0.0), (0.09, 0.05, 0.004, 0.0), [True, False]),
    ],
)
def test_verdicts_follow_the_numbers(ordered: tuple[float, ...], unordered: tuple[float, ...], expected: list[bool]) -> None:
    assert [verdict.holds for verdict in samples.decide(rows(ordered, unordered))] == expected
