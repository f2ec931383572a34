"""Parsing truncations; their distributions are tested in tests/laws."""

from __future__ import annotations

import pytest
import torch

from anytime.autoencoders.truncation import Full, Geometric, Mixture, Truncation, Uniform, keep_mask, parse_truncation
from anytime.core.errors import UserError


@pytest.mark.parametrize(
    ("text", "distribution"),
    [("full", Full()), ("uniform", Uniform()), ("geometric:0.03", Geometric(p=0.03)), ("mixture:0.5", Mixture(full=0.5))],
)
def test_parse(text: str, distribution: Truncation) -> None:
    assert parse_truncation(text) == distribution


@pytest.mark.parametrize(
    "text", ["", "ful", "full:", "full:1", "uniform:0.5", "geometric", "geometric:", "geometric:x", "mixture", "Geometric:0.1"]
)
def test_unknown_truncations_are_refused_with_examples(text: str) -> None:
    with pytest.raises(UserError, match=r"`truncation` .* geometric:0\.03"):
        parse_truncation(text)


@pytest.mark.parametrize("text", ["geometric:0", "geometric:1", "geometric:-1", "geometric:nan", "mixture:1.5", "mixture:nan"])
def test_parameters_outside_their_range_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        parse_truncation(text)


def test_keep_mask() -> None:
    assert keep_mask(torch.tensor([0, 1, 3]), 3).tolist() == [[False] * 3, [True, False, False], [True] * 3]
