"""What determines every byte of bulk samples. The manifest stores it, and a directory holds the samples of one request."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch

from anytime.core.errors import UserError
from anytime.model import AnytimeModel
from anytime.sampling.budget import whole_number
from anytime.sampling.gumbel import SamplingSettings
from anytime.sampling.sampler import check_rows, check_seed

ROWS_PER_SHARD = 1024
"""Samples of a shard by default, or the rows that a GPU computes at once if these are more."""
MAX_ROWS_PER_SHARD = 1 << 20
MAX_SHARDS = 100_000
"""Their names have five digits, and the manifest lists all of them."""

SHARD_FORMATS = ("npz", "tar")


@dataclass(frozen=True, kw_only=True)
class BulkRequest:
    """A number of samples and everything that they depend on."""

    model: str
    """Hash of the model."""
    n: int
    seed: int
    codes: int
    """Number of codes of every sample."""
    settings: SamplingSettings
    prefix: tuple[int, ...] = ()
    """Codes that every sample begins with."""
    engine: str
    precision: str
    device: str
    """cpu or cuda: they round differently."""
    block: int
    """Rows computed at once. Blocks are aligned to row numbers, and the last one is computed in full."""
    shards: str
    """Format of the shards: npz or tar."""
    rows_per_shard: int

    @property
    def count(self) -> int:
        """Number of shards."""
        return -(-self.n // self.rows_per_shard)

    def rows(self, index: int) -> range:
        """Return the row numbers of a shard."""
        first = index * self.rows_per_shard
        return range(first, min(first + self.rows_per_shard, self.n))

    def rows_of(self, indices: Set[int]) -> int:
        """Return the number of samples in these shards; only the last one may have fewer than the others."""
        last = self.count - 1
        short = self.rows_per_shard - len(self.rows(last)) if last in indices else 0
        return len(indices) * self.rows_per_shard - short

    def name(self, index: int) -> str:
        """Return the file name of a shard."""
        return f"shard-{index:05d}.{self.shards}"


def bulk_request(
    model: AnytimeModel,
    n: int,
    *,
    seed: int = 0,
    codes: int | None = None,
    fraction: float | None = None,
    quality: float | None = None,
    prefix: tuple[int, ...] = (),
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    shards: str = "npz",
    rows_per_shard: int | None = None,
) -> BulkRequest:
    """Return a checked request; the arguments are those of `AnytimeModel.sample`."""
    if shards not in SHARD_FORMATS:
        raise UserError(f"`shards` {shards!r} is unknown; use npz or tar")
    count = model.code_count(codes, fraction, quality)
    model.sampler.check_prefix(torch.tensor([prefix], dtype=torch.long, device="cpu"), count)
    engine = model.engine
    request = BulkRequest(
        model=model.hash, n=check_rows(n), seed=check_seed(seed, "`seed`"), codes=count,
        settings=model.settings(temperature, top_k, top_p), prefix=prefix, engine=engine.name, precision=engine.precision,
        device=engine.device.type, block=engine.block, shards=shards,
        rows_per_shard=check_rows_per_shard(rows_per_shard, engine.block),
    )  # fmt: skip
    if request.count > MAX_SHARDS:
        least = -(-n // (MAX_SHARDS * engine.block)) * engine.block
        raise UserError(f"`n` of {n} makes {request.count:,} shards; set `rows_per_shard` to {least} or more")
    return request


def check_rows_per_shard(rows: int | None, block: int) -> int:
    """Return the rows of a shard; refuse a number that splits blocks."""
    if rows is None:
        return max(ROWS_PER_SHARD, block)
    if not block <= whole_number(rows, "`rows_per_shard`") <= MAX_ROWS_PER_SHARD or rows % block:
        raise UserError(
            f"`rows_per_shard` must be a multiple of {block}, the rows computed at once, "
            f"and at most {MAX_ROWS_PER_SHARD}, not {rows}"
        )
    return rows


def first_difference(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Return the first key at which two requests differ, with both values; None if they are equal.

    >>> first_difference({"seed": 0, "settings": {"top_k": 5}}, {"seed": 0, "settings": {"top_k": 9}})
    ('top_k', 5, 9)
    """
    for key in [*ours, *(theirs.keys() - ours.keys())]:
        mine, other = ours.get(key), theirs.get(key)
        if isinstance(mine, dict) and isinstance(other, dict):
            if found := first_difference(mine, other):
                return found
        elif mine != other:
            return key, mine, other
    return None
