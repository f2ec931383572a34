"""The command line's spelling of the laws; what they do is in tests/laws."""

from __future__ import annotations

import pytest
import torch

from anytime.autoencoders.truncation import Full, Geometric, Mixture, Truncation, Uniform, kept, parse
from anytime.core.errors import UserError


@pytest.mark.parametrize(
    ("text", "law"),
    [("full", Full()), ("uniform", Uniform()), ("geometric:0.03", Geometric(p=0.03)), ("mixture:0.5", Mixture(full=0.5))],
)
def test_parse(text: str, law: Truncation) -> None:
    assert parse(text) == law


@pytest.mark.parametrize(
    "text", ["", "ful", "full:", "full:1", "uniform:0.5", "geometric", "geometric:", "geometric:x", "mixture", "Geometric:0.1"]
)
def test_what_is_no_law_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UserError, match=r"--truncation .* geometric:0\.03"):
        parse(text)


@pytest.mark.parametrize("text", ["geometric:0", "geometric:1", "geometric:-1", "geometric:nan", "mixture:1.5", "mixture:nan"])
def test_parameters_outside_their_range_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        parse(text)


def test_kept() -> None:
    assert kept(torch.tensor([0, 1, 3]), 3).tolist() == [[False] * 3, [True, False, False], [True] * 3]
