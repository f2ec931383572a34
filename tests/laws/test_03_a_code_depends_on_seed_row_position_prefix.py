"""Law 3. A code depends only on seed, row, position and prefix.

At equal shapes this is exact; across batch sizes at least 99.9 % of rows are equal and every first difference is shown to be
a rounding tie. Bulk work runs in fixed, row-aligned blocks, so its bytes do not depend on how it is split.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anytime.model import AnytimeModel
from anytime.priors import PriorNetwork, Transformer
from anytime.sampling.budget import Budget
from anytime.sampling.engines.base import Request
from anytime.sampling.engines.eager import BLOCK, EagerEngine
from anytime.sampling.engines.packed_transformer import PackedTransformer
from anytime.sampling.gumbel import SamplingSettings, filter_logits, gumbel
from anytime.sampling.latency import LatencyEstimate
from anytime.sampling.session import Session

ROUNDING = 1e-4  # of logits about 1 in size, in float32


def sampled_codes(prior: PriorNetwork | PackedTransformer, rows: Tensor, seed: int, settings: SamplingSettings) -> Tensor:
    """Return the codes of these rows, sampled as one batch."""
    engine = EagerEngine(prior, lambda codes: torch.zeros(len(codes), 1), torch.device("cpu"))
    engine.block = len(rows)
    empty = torch.empty(len(rows), 0, dtype=torch.long)
    session = Session(engine, LatencyEstimate(), prior.length, Request(empty, rows, seed, settings, ""))
    return session.run(Budget(codes=prior.length)).codes


@torch.no_grad()
def assert_equal_but_for_ties(
    prior: PriorNetwork, a: Tensor, b: Tensor, rows: Tensor, seed: int, settings: SamplingSettings
) -> None:
    """At least 99.9 % of rows agree; at every first difference the two best noised logits are equal up to rounding."""
    differing = (a != b).any(1).nonzero()[:, 0]
    assert len(differing) <= len(rows) / 1000
    for row in differing:
        position = int((a[row] != b[row]).nonzero()[0])
        logits = prior(a[row : row + 1])[:, position]
        noised = filter_logits(logits, settings) + gumbel(seed, rows[row : row + 1], position, prior.codebook_size)
        chosen = noised[0, [int(a[row, position]), int(b[row, position])]]
        assert (noised.max() - chosen).max() < ROUNDING, f"row {rows[row]} differs at {position} without a tie: {chosen}"


@pytest.mark.parametrize(
    "settings",
    [SamplingSettings(), SamplingSettings(temperature=0.7, top_k=20, top_p=0.9)],
    ids=["plain", "filtered"],
)
@pytest.mark.parametrize(("batch", "count"), [(1, 40), (7, 140), (100, 2000)])
def test_the_batch_size_does_not_matter(prior: PriorNetwork, settings: SamplingSettings, batch: int, count: int) -> None:
    rows = torch.arange(count)
    whole = torch.cat([sampled_codes(prior, part, 4, settings) for part in rows.split(BLOCK)])
    parts = torch.cat([sampled_codes(prior, part, 4, settings) for part in rows.split(batch)])
    assert_equal_but_for_ties(prior, whole, parts, rows, 4, settings)


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize(("batch", "count"), [(1, 40), (7, 140), (100, 2000)])
def test_the_packed_engine_samples_the_eager_codes(prior: PriorNetwork, seed: int, batch: int, count: int) -> None:
    """Without a second engine for other priors there is nothing to compare."""
    if not isinstance(prior, Transformer):
        return
    rows, packed, settings = torch.arange(count), PackedTransformer(prior, torch.float32), SamplingSettings(temperature=0.9)
    eager = torch.cat([sampled_codes(prior, part, seed, settings) for part in rows.split(BLOCK)])
    found = torch.cat([sampled_codes(packed, part, seed, settings) for part in rows.split(batch)])
    assert_equal_but_for_ties(prior, eager, found, rows, seed, settings)


def test_other_rows_in_the_batch_do_not_matter(prior: PriorNetwork) -> None:
    """The same rows among others and in another order: at equal shapes the codes are exactly equal."""
    rows, among = torch.arange(64), torch.arange(64).flip(0) * 3
    alone, other = sampled_codes(prior, rows, 4, SamplingSettings()), sampled_codes(prior, among, 4, SamplingSettings())
    shared = {int(r): i for i, r in enumerate(among)}
    assert sum(r in shared for r in range(64)) == 22
    for row in range(0, 64, 3):
        assert torch.equal(alone[row], other[shared[row]])


def test_the_number_of_rows_does_not_matter(model: AnytimeModel) -> None:
    most = model.sample(BLOCK + 100, seed=3)
    assert torch.equal(most.rows, torch.arange(BLOCK + 100))
    for n in (1, 5, 99):
        few = model.sample(n, seed=3).codes
        assert_equal_but_for_ties(model.prior, most.codes[:n], few, torch.arange(n), 3, SamplingSettings())


@pytest.mark.parametrize("n", [BLOCK, BLOCK + 1, 2 * BLOCK])
def test_full_blocks_have_the_same_bytes_whatever_follows(model: AnytimeModel, n: int) -> None:
    more, sample = model.sample(2 * BLOCK + 30, seed=3), model.sample(n, seed=3)
    whole = n // BLOCK * BLOCK
    assert torch.equal(sample.codes[:whole], more.codes[:whole])
    assert torch.equal(sample.data[:whole], more.data[:whole])
    assert_equal_but_for_ties(model.prior, sample.codes, more.codes[:n], torch.arange(n), 3, SamplingSettings())


def test_several_blocks_equal_one_batch(model: AnytimeModel) -> None:
    """Rows from 512 on are sampled by their own numbers, with their own row of the prefix."""
    n = BLOCK + 60
    whole = model.sample(n, seed=9)
    together = sampled_codes(model.prior, torch.arange(n), 9, SamplingSettings())
    assert_equal_but_for_ties(model.prior, whole.codes, together, torch.arange(n), 9, SamplingSettings())
    assert not torch.equal(whole.codes[:60], whole.codes[BLOCK:])
    continued = model.sample(n, seed=9, prefix=whole.codes[:, :3])
    assert torch.equal(continued.codes, whole.codes)
    parts = [model.encode(whole.data[:BLOCK]), model.encode(whole.data[BLOCK:])]
    assert torch.equal(model.encode(whole.data), torch.cat(parts))


@pytest.mark.parametrize("k", range(9))
def test_a_prefix_of_a_longer_run_continues_to_the_same_codes(model: AnytimeModel, k: int) -> None:
    full = model.sample(6, seed=7, temperature=1.3).codes
    again = model.sample(6, seed=7, temperature=1.3, prefix=full[:, :k]).codes
    assert torch.equal(again, full)


def test_a_shared_prefix_continues_each_row_by_its_own_number(model: AnytimeModel) -> None:
    full = model.sample(6, seed=7).codes
    for row in range(6):
        alike = model.sample(6, seed=7, prefix=full[row : row + 1, :3]).codes
        assert torch.equal(alike[:, :3], full[row : row + 1, :3].expand(6, -1))
        assert torch.equal(alike[row], full[row])


def test_seed_row_position_and_prefix_all_matter(model: AnytimeModel) -> None:
    one, other = model.sample(40, seed=0).codes, model.sample(40, seed=1).codes
    assert (one != other).float().mean() > 0.5
    assert len(one.unique(dim=0)) > 35, "rows repeat each other"
    assert len(one.T.unique(dim=0)) == model.length, "positions repeat each other"
    changed = (one[:, :3] + 1) % model.codebook_size
    follow = model.sample(40, seed=0, prefix=changed).codes
    assert (follow[:, 3:] != one[:, 3:]).float().mean() > 0.05, "the prefix is ignored"


def test_the_global_generator_is_not_used(model: AnytimeModel) -> None:
    torch.manual_seed(0)
    one = model.sample(4, seed=2).codes
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(model.sample(4, seed=2).codes, one)
    assert torch.equal(torch.get_rng_state(), before)
