"""Batches addressed by step number: any step's examples can be named without the steps before it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Int16, Shaped, UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.random import permutation, uniform
from anytime.data.audio_io import INT16_MAX
from anytime.data.recordings import PADDING, Recordings, is_valid_sample

_CROPS, _SPEEDS = 1, 2  # counters of their own: `keep` is drawn from the same seed
SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
"""Pixels down and to the right."""
NUM_AUGMENTATIONS = 2 * len(SHIFTS)
"""In which a picture can be shown."""


def batch_indices(count: int, batch: int, seed: int, step: int) -> Int[Tensor, " batch"]:
    """The examples of the global batch at `step`; a set smaller than a batch is one batch.

    Every epoch is a permutation that depends on (seed, epoch) alone, without its incomplete last batch. A resumed run
    and any number of processes therefore see the same examples as one uninterrupted process.
    """
    batch = min(batch, count)
    epoch, position = divmod(step, count // batch)
    return permutation(count, seed, epoch)[position * batch : (position + 1) * batch]


class Loader:
    """One process's share of every global batch, cut from a tensor in memory on any device and of any dtype.

    Of recordings, every epoch takes another crop of each, which depends on (seed, epoch, recording) alone, faster or slower by
    up to the share `speed`.
    """

    def __init__(
        self,
        examples: Shaped[Tensor, "count ..."] | Recordings,
        batch: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        speed: float = 0.0,
    ) -> None:
        if batch < 1 or len(examples) < 1:
            raise UserError(f"batch {batch} of {len(examples)} examples is empty: set batch to at least 1 and give examples")
        self.batch = min(batch, len(examples))
        if self.batch % world_size:
            whole = "" if self.batch == batch else " (the whole set)"
            raise UserError(
                f"batch {self.batch}{whole} is not shared evenly by {world_size} processes: set a multiple of {world_size}"
            )
        self.examples, self.seed, self.speed = examples, seed, speed
        share = self.batch // world_size
        self._rank_slice = slice(rank * share, (rank + 1) * share)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.examples) // self.batch

    def batch_at(self, step: int) -> Shaped[Tensor, "share ..."]:
        """This process's contiguous slice of the global batch at `step`, on the examples' device."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:  # kept for the epoch: sorting 50,000 keys at every step would cost milliseconds
            order = permutation(len(self.examples), self.seed, epoch)
            self._epoch, self._order = epoch, order.to(self.examples.device)
        rows = self._order[position * self.batch :][: self.batch][self._rank_slice]
        if isinstance(self.examples, Recordings):
            speed = speed_factors(uniform(self.seed, _SPEEDS, epoch, rows), self.speed) if self.speed else None
            return self.examples.crops(rows, uniform(self.seed, _CROPS, epoch, rows), speed)
        return self.examples[rows]


def speed_factors(numbers: Float[Tensor, "*shape"], share: float) -> Float[Tensor, "*shape"]:
    """Uniform numbers in (0, 1) as speeds between 1 / (1 + share) and 1 + share, evenly as one hears them."""
    return (1 + share) ** (2 * numbers - 1)


def augment_recordings(recordings: Recordings, seed: int, number: int, speed: float) -> Int16[Tensor, "n 1 crop"]:
    """The crops of all recordings end to end: view 0 as they are, every other one at speeds and places of its own."""
    if number == 0:
        return recordings.tiles()
    all_rows = torch.arange(len(recordings), device=recordings.device)
    positions, numbers = (uniform(seed, counter, number, all_rows) for counter in (_CROPS, _SPEEDS))
    return recordings.tiles(positions, speed_factors(numbers, speed) if speed else None)


def augment_images(x: UInt8[Tensor, "n channel height width"], number: int) -> UInt8[Tensor, "n channel height width"]:
    """Pictures as they are, then mirrored, then moved by a pixel each way, as they are and mirrored; the edge fills the gap."""
    down, right = SHIFTS[number // 2]
    rows, columns = (torch.arange(side, device=x.device) for side in x.shape[-2:])
    shifted = x[..., (rows - down).clamp(0, len(rows) - 1), :][..., (columns - right).clamp(0, len(columns) - 1)]
    return shifted.flip(-1) if number % 2 else shifted


def to_float(x: UInt8[Tensor, "*shape"] | Int16[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Bytes as float32 in [0, 1], 16-bit sound as float32 in [-1, 1] with silence for padding."""
    if x.dtype == torch.int16:
        return torch.where(x == PADDING, 0.0, x.to(torch.float32) / INT16_MAX)
    return x.to(torch.float32) / 255


def to_int16(x: Float[Tensor, "*shape"]) -> Int16[Tensor, "*shape"]:
    """Numbers in [-1, 1] as 16-bit sound; what lies outside is clamped."""
    return (x * INT16_MAX).round().clamp(-INT16_MAX, INT16_MAX).to(torch.int16)


def to_stored(x: Float[Tensor, "n channel *place"]) -> UInt8[Tensor, "n channel *place"] | Int16[Tensor, "n channel *place"]:
    """Pictures as bytes, waveforms as 16-bit sound: as the data are that they are compared with."""
    return to_int16(x) if x.ndim == 3 else to_uint8(x)


def valid_mask(x: UInt8[Tensor, "*shape"] | Int16[Tensor, "*shape"]) -> Float[Tensor, "*shape"] | None:
    """1 where there is data and 0 where there is padding; None for pictures, which have none."""
    return is_valid_sample(x) if x.dtype == torch.int16 else None


def to_uint8(x: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
    """Numbers in [0, 1] as the nearest bytes; what lies outside is clamped."""
    return (x * 255).round().clamp(0, 255).to(torch.uint8)
