from __future__ import annotations

import torch

from anytime import collective


def test_alone_everything_is_the_identity() -> None:
    assert (collective.ranks(), collective.rank()) == (1, 0)
    value = torch.randn(3, requires_grad=True)
    assert collective.total(value) is value
    assert collective.total_with_gradient(value) is value
