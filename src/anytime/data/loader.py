"""Batches addressed by step number: the examples of any step are known without the steps before it."""

from __future__ import annotations

from concurrent.futures import Future

import torch
from jaxtyping import Float, Int, Int16, Shaped, UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.random import permutation
from anytime.data.audio_io import INT16_MAX
from anytime.data.augment import crop_positions_and_speeds
from anytime.data.image_shards import ImageShards
from anytime.data.recordings import PADDING, Recordings, is_valid_sample


class Loader:
    """One process's share of every global batch, indexed from a tensor in memory on any device and of any dtype.

    Images in shards are decoded from there, the batch of the next step in the background.

    Every epoch is a permutation that depends on (seed, epoch) alone, without its incomplete last batch. A resumed run
    and any number of processes therefore see the same examples as one uninterrupted process. A dataset smaller than a
    batch is one batch. Every epoch takes a new crop of each recording, at a random speed if `speed_perturb` is not
    zero; both depend on (seed, epoch, recording) alone.
    """

    def __init__(
        self,
        examples: Shaped[Tensor, "count ..."] | Recordings | ImageShards,
        batch: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        speed_perturb: float = 0.0,
    ) -> None:
        if batch < 1 or len(examples) < 1:
            raise UserError(
                f"`batch` must be at least 1 and the data not empty, not a batch of {batch} of {len(examples)} examples"
            )
        self.batch = min(batch, len(examples))
        if self.batch % world_size:
            whole = "" if self.batch == batch else " (the whole dataset)"
            raise UserError(
                f"`batch` {self.batch}{whole} does not divide among {world_size} processes: set a multiple of {world_size}"
            )
        self.examples, self.seed, self.speed_perturb = examples, seed, speed_perturb
        share = self.batch // world_size
        self._rank_slice = slice(rank * share, (rank + 1) * share)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)
        self._next: tuple[int, Future[Tensor]] | None = None  # a step and its batch, decoded in the background

    @property
    def steps_per_epoch(self) -> int:
        """Number of whole batches in an epoch."""
        return len(self.examples) // self.batch

    def batch_at(self, step: int) -> Shaped[Tensor, "share ..."]:
        """Return this process's contiguous slice of the global batch at `step`, on the examples' device."""
        rows = self._rows_at(step)
        if isinstance(self.examples, ImageShards):
            return self._from_shards(self.examples, rows, step)
        if isinstance(self.examples, Recordings):
            epoch = step // self.steps_per_epoch
            return self.examples.crops(rows, *crop_positions_and_speeds(rows, self.seed, epoch, self.speed_perturb))
        return self.examples[rows]

    def _rows_at(self, step: int) -> Int[Tensor, " share"]:
        """Return the positions of this process's examples at a step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:  # kept for the epoch: sorting 50,000 keys at every step would take milliseconds
            order = permutation(len(self.examples), self.seed, epoch)
            self._epoch, self._order = epoch, order.to(self.examples.device)
        return self._order[position * self.batch :][: self.batch][self._rank_slice]

    def _from_shards(self, examples: ImageShards, rows: Int[Tensor, " share"], step: int) -> UInt8[Tensor, "share ..."]:
        """Return a batch, and begin to decode the next one."""
        is_ready = self._next is not None and self._next[0] == step
        batch = self._next[1].result() if self._next is not None and is_ready else examples.read(rows)
        self._next = step + 1, examples.read_later(self._rows_at(step + 1))
        return batch


def to_float(x: UInt8[Tensor, "*shape"] | Int16[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Convert bytes to float32 in [0, 1], and int16 audio to float32 in [-1, 1] with zeros for padding."""
    if x.dtype == torch.int16:
        return torch.where(x == PADDING, 0.0, x.to(torch.float32) / INT16_MAX)
    return x.to(torch.float32) / 255


def to_uint8(x: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
    """Convert floats in [0, 1] to the nearest bytes, clamped."""
    return (x * 255).round().clamp(0, 255).to(torch.uint8)


def to_int16(x: Float[Tensor, "*shape"]) -> Int16[Tensor, "*shape"]:
    """Convert floats in [-1, 1] to int16 audio, clamped."""
    return (x * INT16_MAX).round().clamp(-INT16_MAX, INT16_MAX).to(torch.int16)


def to_stored(x: Float[Tensor, "n channel *place"]) -> UInt8[Tensor, "n channel *place"] | Int16[Tensor, "n channel *place"]:
    """Convert generated samples to the type of the data: images to bytes, audio to int16."""
    return to_int16(x) if x.ndim == 3 else to_uint8(x)


def valid_mask(x: UInt8[Tensor, "*shape"] | Int16[Tensor, "*shape"]) -> Float[Tensor, "*shape"] | None:
    """Return 1 for samples and 0 for padding; None for images, which have no padding."""
    return is_valid_sample(x) if x.dtype == torch.int16 else None
