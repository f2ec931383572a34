"""Distances of samples that share their first code, and verdicts from synthetic numbers."""

from __future__ import annotations

import pytest
import torch

from anytime.core.random import derive
from anytime.core.results import Row
from anytime.experiments import priority_code
from anytime.model import AnytimeModel


def test_mean_distance_is_over_all_pairs() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])  # distances 5, 0, 5
    assert priority_code.mean_distance(x) == pytest.approx(10 / 3 / 2**0.5)


def test_rows_of_a_model(tiny: AnytimeModel) -> None:
    found = priority_code.model_rows(tiny, 7, 3, 5)
    codes = [row for row in found if "ratio" in row]
    first_codes = tiny.sample(24, seed=derive(7, "priority", "codes"), codes=1).codes[:, 0].tolist()
    assert [row["code"] for row in codes] == list(dict.fromkeys(first_codes))[:3]
    first = codes[0]
    alike = tiny.sample(5, seed=derive(7, "priority", first["code"]), prefix=torch.tensor([[first["code"]]]))
    assert set(alike.codes[:, 0].tolist()) == {first["code"]}
    apart = priority_code.mean_distance(tiny.sample(40, seed=derive(7, "priority", "random")).data)
    assert first["ratio"] == pytest.approx(priority_code.mean_distance(alike.data) / apart)
    measures = {row["measure"]: row["value"] for row in found if "measure" in row}
    assert measures["distance, random pairs"] == pytest.approx(apart)
    assert measures["ratio, first code shared"] == pytest.approx(sum(row["ratio"] for row in codes) / 3)


def rows(ordered: list[float], unordered: list[float]) -> list[Row]:
    named = {"ordered": ordered, "unordered": unordered}
    return [{"series": variant, "ratio": ratio} for variant, ratios in named.items() for ratio in ratios]


@pytest.mark.parametrize(
    ("ordered", "unordered", "expected"),
    [
        ([0.60, 0.62, 0.64], [0.95, 0.97, 0.99], [True, True]),
        ([1.02, 1.01, 1.03], [0.95, 0.97, 0.99], [False, False]),
        ([0.60, 0.62, 0.64], [0.50, 0.52, 0.54], [True, False]),
        ([0.60, 1.20, 1.05], [0.99, 1.02, 1.01], [None, None]),  # below, but the codes differ by more
        ([0.60], [0.99, 0.97], [None, None]),  # one code has no spread
    ],
)
def test_verdicts_follow_the_numbers(ordered: list[float], unordered: list[float], expected: list[bool | None]) -> None:
    assert [verdict.holds for verdict in priority_code.decide(rows(ordered, unordered))] == expected
