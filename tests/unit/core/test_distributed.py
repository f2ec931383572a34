from __future__ import annotations

import torch

from anytime.core import distributed


def test_a_single_process_is_the_identity() -> None:
    assert (distributed.world_size(), distributed.rank()) == (1, 0)
    value = torch.randn(3, requires_grad=True)
    assert distributed.all_reduce_sum(value) is value
    assert distributed.all_reduce_sum_with_grad(value) is value
