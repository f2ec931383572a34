from __future__ import annotations

import torch

from anytime.core import distributed


def test_alone_everything_is_the_identity() -> None:
    assert (distributed.ranks(), distributed.rank()) == (1, 0)
    value = torch.randn(3, requires_grad=True)
    assert distributed.total(value) is value
    assert distributed.total_with_gradient(value) is value
