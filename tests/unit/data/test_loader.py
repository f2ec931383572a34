from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anytime.core.errors import UserError
from anytime.core.random import permutation
from anytime.data.loader import Loader, to_float, to_uint8


@given(count=st.integers(1, 60), batch=st.integers(1, 70), epoch=st.integers(0, 3), seed=st.integers(0, 2**40))
def test_an_epoch_is_a_permutation_without_its_incomplete_batch(count: int, batch: int, epoch: int, seed: int) -> None:
    loader = Loader(torch.arange(count), batch, seed)
    steps = loader.steps_per_epoch
    seen = torch.cat([loader.batch_at(epoch * steps + step) for step in range(steps)])
    assert len(seen) == len(seen.unique()) == count // min(batch, count) * min(batch, count)
    assert torch.equal(seen, permutation(count, seed, epoch)[: len(seen)])


def test_order_changes_with_epoch_and_seed_only() -> None:
    first, again, other = (Loader(torch.arange(100), 100, seed) for seed in (7, 7, 8))
    assert torch.equal(first.batch_at(3), again.batch_at(3))
    assert not torch.equal(first.batch_at(3), first.batch_at(4))
    assert not torch.equal(first.batch_at(3), other.batch_at(3))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.float32])
def test_rank_slices_concatenate_to_the_global_batch(dtype: torch.dtype) -> None:
    examples = torch.arange(50).to(dtype).reshape(50, 1).expand(50, 3)
    loaders = [Loader(examples, 12, seed=5, rank=rank, world_size=3) for rank in range(3)]
    for step in (0, 1, 9, 2, 0):  # forth and back across epochs
        whole = torch.cat([loader.batch_at(step) for loader in loaders])
        assert whole.dtype == dtype
        assert torch.equal(whole, examples[permutation(50, 5, step // 4)[step % 4 * 12 :][:12]])
        assert torch.equal(whole, Loader(examples, 12, seed=5).batch_at(step))


def test_a_set_smaller_than_a_batch_is_one_batch() -> None:
    loader = Loader(torch.arange(5), 128, seed=0)
    assert (loader.batch, loader.steps_per_epoch) == (5, 1)
    assert loader.batch_at(3).sort().values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("count", "batch", "world_size"), [(50, 10, 3), (5, 128, 2), (50, 0, 1), (0, 10, 1)])
def test_batches_that_cannot_be_shared_are_refused(count: int, batch: int, world_size: int) -> None:
    with pytest.raises(UserError, match="batch"):
        Loader(torch.arange(count), batch, seed=0, world_size=world_size)


def test_bytes_survive_the_way_to_float_and_back() -> None:
    x = torch.arange(256, dtype=torch.uint8)
    assert to_float(x).dtype == torch.float32
    assert (to_float(x).min(), to_float(x).max()) == (0, 1)
    assert torch.equal(to_uint8(to_float(x)), x)
    assert to_uint8(torch.tensor([-1.0, 0.499 / 255, 0.501 / 255, 2.0])).tolist() == [0, 0, 1, 255]
