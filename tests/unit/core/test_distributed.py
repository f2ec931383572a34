from __future__ import annotations

import pytest
import torch

from anytime.core import distributed


def test_a_single_process_is_the_identity() -> None:
    assert (distributed.world_size(), distributed.rank()) == (1, 0)
    value = torch.randn(3, requires_grad=True)
    assert distributed.all_reduce_sum(value) is value
    assert distributed.all_reduce_sum_with_grad(value) is value


def test_gradients_are_averaged_once_they_are_gathered() -> None:
    gathered: torch.futures.Future[None] = torch.futures.Future()
    averaged = distributed._average_when(gathered, [torch.ones(3), torch.full((3,), 2.0)])
    assert not averaged.done()
    gathered.set_result(None)
    assert torch.equal(averaged.wait(), torch.full((3,), 1.5))


def test_gradients_of_a_rank_that_is_gone_are_never_averaged() -> None:
    """Rank 0 would take a step along the content of unused memory, and write it into a checkpoint."""
    gathered: torch.futures.Future[None] = torch.futures.Future()
    averaged = distributed._average_when(gathered, [torch.ones(3), torch.empty(3)])
    gathered.set_exception(RuntimeError("Connection closed by peer"))
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        averaged.wait()
