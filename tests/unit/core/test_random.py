from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anytime.core.random import bits, derive, normal, permutation, uniform

M = 0xFFFFFFFF
seeds = st.integers(-(2**63), 2**64 - 1)
counters = st.integers(-(2**31), 2**31 - 1)

GOLDEN = {
    "bits(0, 0)": 2118102034,
    "bits(2^63 - 1, 1, 2, 3)": 4131690465,
    "uniform(7, 0..2)": [0.8896498084068298, 0.7201243042945862, 0.1681477427482605],
    "permutation(8, 5, 1)": [0, 7, 3, 4, 6, 1, 2, 5],
    "derive(0, pretrain)": 6390201986113974618,
    "derive(1, ordered, 12)": 3202967124373967,
}


def mix(x: int) -> int:
    x = (x ^ (x >> 16)) * 0x7FEB352D & M
    x = (x ^ (x >> 15)) * 0x846CA68B & M
    return x ^ (x >> 16)


def absorb(word: int, value: int) -> int:
    return mix(((word ^ value) & M) + 0x9E3779B9 & M)


def reference(seed: int, *numbers: int) -> int:
    """The documented arithmetic on unsigned Python integers: two key words absorb everything but the last counter."""
    low, high = seed & M, seed >> 32 & M
    key = [absorb(low, high), absorb(low ^ 0x5851F42D, mix(high))]
    for value in numbers[:-1]:
        key = [absorb(word, value) for word in key]
    return mix(mix(numbers[-1] * 0x9E3779B9 + key[0] & M) ^ key[1])


def unsigned(x: torch.Tensor) -> list[int]:
    return [value & M for value in x.flatten().tolist()]


@given(seed=seeds, numbers=st.lists(counters, min_size=1, max_size=4))
def test_bits_against_integer_arithmetic(seed: int, numbers: list[int]) -> None:
    assert unsigned(bits(seed, *numbers)) == [reference(seed, *numbers)]


@given(seed=seeds, numbers=st.lists(counters, min_size=2, max_size=4), dtype=st.sampled_from([torch.int32, torch.int64]))
def test_tensors_and_integers_are_the_same_counters(seed: int, numbers: list[int], dtype: torch.dtype) -> None:
    expected = reference(seed, *numbers)
    for place in range(len(numbers)):
        mixed = [torch.tensor([n], dtype=dtype) if i == place else n for i, n in enumerate(numbers)]
        assert unsigned(bits(seed, *mixed)) == [expected]


def test_counters_broadcast() -> None:
    rows, columns = torch.arange(5)[:, None], torch.arange(7)[None]
    found = bits(3, rows, 11, columns)
    assert found.shape == (5, 7)
    assert found.dtype == torch.int32
    assert unsigned(found) == [reference(3, row, 11, column) for row in range(5) for column in range(7)]


def test_golden_values() -> None:
    """Frozen: a changed stream would silently change every sample and every training run."""
    assert unsigned(bits(0, 0)) == [GOLDEN["bits(0, 0)"]]
    assert unsigned(bits(2**63 - 1, 1, 2, 3)) == [GOLDEN["bits(2^63 - 1, 1, 2, 3)"]]
    assert uniform(7, torch.arange(3)).tolist() == GOLDEN["uniform(7, 0..2)"]
    assert permutation(8, 5, 1).tolist() == GOLDEN["permutation(8, 5, 1)"]
    assert derive(0, "pretrain") == GOLDEN["derive(0, pretrain)"]
    assert derive(1, "ordered", 12) == GOLDEN["derive(1, ordered, 12)"]


def test_every_counter_matters_and_so_does_its_place() -> None:
    named = [(0, 1, 2, 3), (1, 1, 2, 3), (1 << 32, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2), (0, 0, 2, 3), (0, 1, 2)]
    assert len({int(bits(*numbers)) for numbers in named}) == len(named)
    assert len(bits(0, torch.arange(100)[:, None, None], torch.arange(10)[:, None], torch.arange(100)).unique()) > 99_980


def test_all_64_bits_of_the_seed_count() -> None:
    """Halves of a seed that cancel each other, and every single bit."""
    seeds = [low | high << 32 for low in range(12) for high in range(12)] + [
        1 << place for place in range(4, 64) if place != 32
    ]
    streams = torch.stack([bits(seed, torch.arange(4)) for seed in set(seeds)])
    assert len(streams.unique(dim=0)) == len(set(seeds))


def test_uniform_lies_strictly_inside() -> None:
    x = uniform(0, torch.arange(200_000))
    assert x.dtype == torch.float32
    assert 0 < x.min() < 1e-4
    assert 1 - 1e-4 < x.max() < 1
    assert (-torch.log(-torch.log(x))).isfinite().all()


def test_the_most_extreme_bits_stay_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    extremes = torch.tensor([0, -1, 2**31 - 1, -(2**31)], dtype=torch.int32)
    monkeypatch.setattr("anytime.core.random.bits", lambda *args, **kwargs: extremes)
    x = uniform(0, 0)
    assert x.tolist() == [2**-24, 1 - 2**-24, 0.5 - 2**-24, 0.5 + 2**-24]
    assert (-torch.log(-torch.log(x))).isfinite().all()


def chi_square(counts: torch.Tensor) -> float:
    """In standard deviations above its mean, for equally likely cells."""
    expected = counts.sum() / counts.numel()
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    freedom = counts.numel() - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


STREAMS = {
    "last counter": lambda: uniform(1, torch.arange(100_000)),
    "row": lambda: uniform(1, torch.arange(100_000), 0, 0),
    "position": lambda: uniform(1, 0, torch.arange(100_000), 0),
    "seed": lambda: torch.stack([uniform(seed, 0, 0) for seed in range(2_000)]),
    "grid": lambda: uniform(1, torch.arange(300)[:, None, None], torch.arange(20)[:, None], torch.arange(20)).flatten(),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_each_counter_gives_an_uncorrelated_uniform_stream(stream: str) -> None:
    x = STREAMS[stream]().double()
    assert abs(chi_square(torch.histc(x, 100, 0, 1))) < 5
    cells = (x[:-1] * 10).long() * 10 + (x[1:] * 10).long()  # neighbours
    assert abs(chi_square(torch.bincount(cells, minlength=100).double())) < 5
    assert abs(torch.corrcoef(torch.stack([x[:-1], x[1:]]))[0, 1]) < 5 / math.sqrt(len(x))


def test_neighbouring_streams_are_independent() -> None:
    """Rows, positions and seeds next to each other share nothing."""
    counter = torch.arange(50_000)
    base = uniform(1, 0, 0, counter)
    for other in (
        uniform(1, 1, 0, counter),
        uniform(1, 0, 1, counter),
        uniform(2, 0, 0, counter),
        uniform(1, 0, 0, counter + 1),
    ):
        cells = (base * 10).long() * 10 + (other * 10).long()
        assert abs(chi_square(torch.bincount(cells, minlength=100).double())) < 5


def test_every_bit_is_fair() -> None:
    words = bits(5, torch.arange(50_000))
    for place in range(32):
        share = ((words >> place) & 1).double().mean().item()
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(50_000), f"bit {place}"


@given(count=st.integers(0, 300), seed=seeds, counter=counters)
def test_a_permutation_is_one(count: int, seed: int, counter: int) -> None:
    order = permutation(count, seed, counter)
    assert torch.equal(order.sort().values, torch.arange(count))


def test_permutations_differ_and_are_fair() -> None:
    orders = torch.stack([permutation(6, 1, counter) for counter in range(1_500)])
    for place in range(6):
        assert abs(chi_square(torch.bincount(orders[:, place], minlength=6).double())) < 5
    assert not torch.equal(permutation(50, 1, 0), permutation(50, 2, 0))


def test_derived_seeds_are_far_apart() -> None:
    names = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 2), (0, 1), (0, 2)]
    found = {derive(*name) for name in names}
    assert len(found) == len(names)
    assert all(0 <= value < 1 << 63 for value in found)
    assert len({derive(0, step) for step in range(10_000)}) == 10_000


def test_derive_does_not_depend_on_how_a_number_is_written() -> None:
    assert derive(0, "prior", 3) == derive(0, "prior", "3")


def test_normal_numbers_are_normal() -> None:
    numbers = normal(3, 5, torch.arange(200_000, dtype=torch.int32)).double()
    assert float(numbers.mean()) == pytest.approx(0, abs=0.01)
    for edge in (-2.0, -1.0, 0.0, 0.5, 3.0):
        expected = 0.5 * (1 + math.erf(edge / math.sqrt(2)))
        assert float((numbers < edge).double().mean()) == pytest.approx(expected, abs=0.005)
    assert bool(numbers.isfinite().all())
    assert float(numbers.abs().max()) < 5.4


def test_the_uniform_numbers_at_both_ends_are_finite_as_normal_ones() -> None:
    ends = torch.special.ndtri(torch.tensor([0.5 * 2.0**-23, 1 - 0.5 * 2.0**-23]))
    assert bool(ends.isfinite().all())
