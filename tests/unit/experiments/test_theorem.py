"""The enumeration against the definitions, and the verdicts against rows that contradict them."""

from __future__ import annotations

import copy
import math
from itertools import product
from pathlib import Path

import pytest
import torch

import anytime
from anytime.core import results
from anytime.experiments import theorem

P = (0.4, 0.3, 0.2, 0.1)
DISTRIBUTIONS = ("none", "independent", "shared", "parity")
ROOT = Path(anytime.__file__).parents[2]


def conditional_information(distribution: dict[tuple[int, ...], float], a: list[int], b: list[int], given: list[int]) -> float:
    """Return I(a; b | given) of the named components of the outcomes, by its definition."""

    def marginal(places: list[int]) -> dict[tuple[int, ...], float]:
        out: dict[tuple[int, ...], float] = {}
        for outcome, p in distribution.items():
            key = tuple(outcome[place] for place in places)
            out[key] = out.get(key, 0.0) + p
        return out

    both, first, second, alone = (marginal(places) for places in (a + b + given, a + given, b + given, given))
    total = 0.0
    for key, p in both.items():
        if p > 0:
            x, y, z = key[: len(a)], key[len(a) : len(a) + len(b)], key[len(a) + len(b) :]
            total += p * math.log2(p * alone[z] / (first[x + z] * second[y + z]))
    return total


def joint(g: torch.Tensor, noise: torch.Tensor) -> dict[tuple[int, ...], float]:
    """p(x, z_1, …, z_K)."""
    length = len(g)
    out: dict[tuple[int, ...], float] = {}
    for x, m in product(range(len(P)), product((0, 1), repeat=length)):
        z = tuple(int(g[i, x]) ^ m[i] for i in range(length))
        word = int("".join(map(str, m)), 2)
        out[(x, *z)] = out.get((x, *z), 0.0) + P[x] * float(noise[word])
    return out


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_mutual_informations_and_dependence_by_definition(distribution: str) -> None:
    noise, g = theorem.noise_distributions(3)[distribution], theorem.bits(4)
    assert float(noise.sum()) == pytest.approx(1)
    known = theorem.mutual_informations(torch.tensor(P, dtype=torch.float64), noise, 3)
    gained = theorem.gains(known)
    assert known.shape == (8**3, 3)
    for encoder in (0, 5, 137, 300, 511):
        indices = [encoder // 64, encoder // 8 % 8, encoder % 8]
        world = joint(g[indices], noise)
        for i in range(1, 4):
            before = list(range(1, i))
            assert float(known[encoder, i - 1]) == pytest.approx(
                conditional_information(world, [0], [*before, i], []), abs=1e-12
            )
            assert float(gained[encoder, i - 1]) == pytest.approx(conditional_information(world, [0], [i], before), abs=1e-12)
            if i > 1:
                expected = conditional_information(world, [i - 1], [i], [0, *range(1, i - 1)])
                assert theorem.dependence(noise, i) == pytest.approx(expected, abs=1e-12)


def test_where_the_condition_holds() -> None:
    found = {
        distribution: [theorem.dependence(noise, i) for i in (2, 3, 4)]
        for distribution, noise in theorem.noise_distributions(4).items()
    }
    assert found["none"] == pytest.approx([0, 0, 0], abs=1e-12)
    assert found["independent"] == pytest.approx([0, 0, 0], abs=1e-12)
    assert found["shared"] == pytest.approx([1, 0, 0], abs=1e-12)
    assert found["parity"] == pytest.approx([0, 0, 1], abs=1e-12)


def test_functions_are_counted_once() -> None:
    g = theorem.bits(4)
    assert g.shape == (8, 4)
    assert len(torch.cat([g, 1 - g]).unique(dim=0)) == 16


def test_a_rise_is_a_code_with_more_information_than_the_one_before() -> None:
    gained = torch.tensor([[0.5, 0.5, 0.4], [0.1, 0.5, 0.5], [0.5, 0.1, 0.2]], dtype=torch.float64)
    assert theorem.rises(gained).tolist() == [[False, False, False], [False, True, False], [False, False, True]]


def test_an_optimal_code_is_found() -> None:
    """Without noise, the first bit of an optimal code splits 0.5 to 0.5, and two bits determine x."""
    known = theorem.mutual_informations(torch.tensor(P, dtype=torch.float64), theorem.noise_distributions(3)["none"], 3)
    entropy = -sum(p * math.log2(p) for p in P)
    assert float(known.sum(1).max()) == pytest.approx(1 + 2 * entropy, abs=1e-12)


@pytest.fixture(scope="module")
def small() -> results.Results:
    return theorem.compute(P, length=3, command="command")


def test_a_smaller_world_gives_the_same_verdicts(small: results.Results, tmp_path: Path) -> None:
    assert [verdict.holds for verdict in small.verdicts] == [True] * 5
    assert len(small.rows) == 2 * 4 * 3
    path = small.write(tmp_path)
    assert path == tmp_path / "theorem" / "discrete.json"
    assert results.read(path) == small


def changed(rows: list[results.Row], noise: str, objective: str, code: int, **values: float) -> list[bool | None]:
    rows = copy.deepcopy(rows)
    (row,) = (r for r in rows if (r["noise"], r["objective"], r["code"]) == (noise, objective, code))
    row.update(values)
    return [verdict.holds for verdict in theorem.decide(rows)]


def test_verdicts_follow_the_numbers(small: results.Results) -> None:
    rows = small.rows
    assert changed(rows, "independent", "every prefix", 3, rising=1) == [False, False, True, True, True]
    assert changed(rows, "none", "every prefix", 2, rising=1) == [True, False, True, True, True]
    assert changed(rows, "shared", "every prefix", 3, rising=1) == [False, True, True, True, True]
    assert changed(rows, "shared", "every prefix", 2, rising=0) == [True, True, True, False, True]
    assert changed(rows, "parity", "every prefix", 3, rising=0) == [True, True, True, True, False]
    assert changed(rows, "none", "full length only", 3, unordered_optima=0) == [True, True, False, True, True]


def test_the_code_gives_the_committed_numbers() -> None:
    found = theorem.compute()
    kept = results.read(ROOT / "results" / "theorem" / "discrete.json")
    assert kept.verdicts == found.verdicts
    assert [row.keys() for row in kept.rows] == [row.keys() for row in found.rows]
    for old, new in zip(kept.rows, found.rows, strict=True):
        assert old["gain"] == pytest.approx(new["gain"], abs=1e-6)
        assert (old["rising"], old["optima"]) == (new["rising"], new["optima"])
