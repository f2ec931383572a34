"""Law 2. `sample(n, codes=k).codes == sample(n, codes=full).codes[:, :k]`: the budget changes where it stops, nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from anytime.model import AnytimeModel

LENGTH, CODEBOOK_SIZE = 8, 16


@pytest.mark.parametrize("k", range(1, LENGTH + 1))
def test_a_shorter_sample_is_a_prefix_of_a_longer_one(model: AnytimeModel, k: int) -> None:
    full, short = model.sample(20, seed=11), model.sample(20, seed=11, codes=k)
    assert full.codes.shape == (20, LENGTH)
    assert short.codes.shape == (20, k)
    assert torch.equal(short.codes, full.codes[:, :k])
    assert torch.equal(short.data, model.decode(full.codes[:, :k]))


def test_a_fraction_is_a_number_of_codes(model: AnytimeModel) -> None:
    assert torch.equal(model.sample(4, fraction=0.4).codes, model.sample(4, codes=3).codes)


@hypothesis_settings(max_examples=25)
@given(
    k=st.integers(1, LENGTH),
    n=st.integers(1, 5),
    seed=st.integers(0, 2**63 - 1),
    temperature=st.floats(0.05, 10),
    top_k=st.none() | st.integers(1, CODEBOOK_SIZE + 3),
    top_p=st.none() | st.floats(0.01, 1),
    data=st.data(),
)
def test_this_holds_for_every_setting_and_prefix(
    model: AnytimeModel,
    k: int,
    n: int,
    seed: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    data: st.DataObject,
) -> None:
    rows = data.draw(st.sampled_from([1, n]))
    prefix = torch.randint(CODEBOOK_SIZE, (rows, data.draw(st.integers(0, k))), generator=torch.Generator().manual_seed(n))
    settings = {"seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p, "prefix": prefix}
    full, short = model.sample(n, **settings), model.sample(n, codes=k, **settings)
    assert torch.equal(short.codes, full.codes[:, :k])
    assert torch.equal(full.codes[:, : prefix.shape[1]], prefix.expand(n, -1))
    assert short.settings == full.settings
