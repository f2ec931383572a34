from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anytime.core.errors import UserError
from anytime.sampling.budget import code_count


def test_all_codes_by_default() -> None:
    assert code_count(70) == 70


@pytest.mark.parametrize("codes", [1, 35, 70])
def test_a_number_of_codes(codes: int) -> None:
    assert code_count(70, codes=codes) == codes


@pytest.mark.parametrize(
    ("fraction", "expected"), [(1e-9, 1), (0.0625, 4), (0.2, 14), (0.4, 28), (0.6, 42), (0.8, 56), (1.0, 70)]
)
def test_a_fraction_is_rounded_and_at_least_one_code(fraction: float, expected: int) -> None:
    assert code_count(70, fraction=fraction) == expected


@given(length=st.integers(1, 2000), fraction=st.floats(0, 1, exclude_min=True))
def test_a_fraction_stays_within_the_code(length: int, fraction: float) -> None:
    count = code_count(length, fraction=fraction)
    assert 1 <= count <= length
    assert count == max(1, round(fraction * length))


@pytest.mark.parametrize("codes", [0, -3, 17])
def test_codes_outside_the_model_name_the_argument_and_the_range(codes: int) -> None:
    with pytest.raises(UserError, match=f"`codes` must be between 1 and 16, the model's length, not {codes}"):
        code_count(16, codes=codes)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1, math.nan])
def test_fractions_outside_the_unit_interval_name_the_argument(fraction: float) -> None:
    with pytest.raises(UserError, match="`fraction` must be above 0 and at most 1"):
        code_count(16, fraction=fraction)


def test_codes_and_fraction_together_are_refused() -> None:
    with pytest.raises(UserError, match="`codes` and `fraction`"):
        code_count(16, codes=4, fraction=0.25)
