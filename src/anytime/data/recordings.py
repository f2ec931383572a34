"""Recordings of any length in memory, cut into examples of one length.

An example is int16, [1, crop]. Where a recording is shorter than the crop the rest is `ABSENT`, the one int16 value that no
sample has, so that padding travels with the data and is masked from losses and metrics wherever the data goes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor

CROP = 15_360  # samples: the paper's length, 0.96 s at 16 kHz
PADDING = -32_768
_CHUNK = 1000  # crops cut at a time
MAX_LENGTH = 20 * 16_000  # samples: a longer recording counts as several, or an epoch would see one crop of an hour


@dataclass(frozen=True, slots=True)
class Recordings:
    """Stretches of one long array of samples."""

    samples: Int16[Tensor, " total"]
    starts: Int[Tensor, " n"]
    lengths: Int[Tensor, " n"]
    names: tuple[str, ...]
    """of the files, one a stretch"""
    crop: int = CROP

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice) -> Recordings:
        return replace(self, starts=self.starts[rows], lengths=self.lengths[rows], names=self.names[rows])

    def select(self, rows: list[int]) -> Recordings:
        """These stretches, in this order."""
        index = torch.tensor(rows, dtype=torch.long)
        return replace(self, starts=self.starts[index], lengths=self.lengths[index], names=tuple(self.names[r] for r in rows))

    @property
    def shape(self) -> torch.Size:
        """Of the examples."""
        return torch.Size((len(self), 1, self.crop))

    @property
    def nbytes(self) -> int:
        return self.samples.nbytes

    @property
    def device(self) -> torch.device:
        return self.samples.device

    @property
    def num_short(self) -> int:
        """How many are shorter than a crop, and padded."""
        return int((self.lengths < self.crop).sum())

    def to(self, device: torch.device) -> Recordings:
        return replace(self, samples=self.samples.to(device), starts=self.starts.to(device), lengths=self.lengths.to(device))

    def crops(
        self, rows: Int[Tensor, " batch"], position: Float[Tensor, " batch"], speed: Float[Tensor, " batch"] | None = None
    ) -> Int16[Tensor, "batch 1 crop"]:
        """One crop of each row; `place` in (0, 1) runs over the starts it can have. A short recording is padded at its end.

        At a `speed` of 1.1 a recording is a tenth shorter and higher.
        """
        num_starts = (self._durations(rows, speed) - self.crop + 1).clamp(min=1)
        return self._extract(rows, (position.double() * num_starts).long(), speed)

    def tiles(
        self, position: Float[Tensor, " n"] | None = None, speed: Float[Tensor, " n"] | None = None
    ) -> Int16[Tensor, "crops 1 crop"]:
        """Every recording cut into crops one after the other, the same at every call; what is left over is not used.

        The first begins with the recording, or where `place` in (0, 1) says within what is left over.
        """
        durations = self._durations(torch.arange(len(self), device=self.device), speed)
        counts = (durations // self.crop).clamp(min=1)
        rows = self.tile_rows(speed)
        first = counts.cumsum(0) - counts
        offsets = (torch.arange(len(rows), device=self.device) - first[rows]) * self.crop
        if position is not None:
            left = (durations - counts * self.crop + 1).clamp(min=1)
            offsets = offsets + (position.double() * left).long()[rows]
        tile_speed = torch.ones_like(rows, dtype=torch.float32) if speed is None else speed[rows]
        # In parts: the places of all samples would take four to forty times the room of the samples themselves.
        parts = zip(*(each.split(_CHUNK) for each in (rows, offsets, tile_speed)), strict=True)
        return torch.cat([self._extract(r, o, None if speed is None else f) for r, o, f in parts])

    def first_crops(self) -> Int16[Tensor, "n 1 crop"]:
        """The first crop of every recording."""
        offsets = torch.zeros(len(self), dtype=torch.long, device=self.device)
        rows = torch.arange(len(self), device=self.device)
        return torch.cat([self._extract(*part) for part in zip(rows.split(_CHUNK), offsets.split(_CHUNK), strict=True)])

    def tile_rows(self, speed: Float[Tensor, " n"] | None = None) -> Int[Tensor, " crops"]:
        """The recording that each tile is cut from."""
        all_rows = torch.arange(len(self), device=self.device)
        return torch.repeat_interleave(all_rows, (self._durations(all_rows, speed) // self.crop).clamp(min=1))

    def _durations(self, rows: Int[Tensor, " batch"], speed: Float[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
        """Samples of each row at that speed."""
        lengths = self.lengths[rows]
        return lengths if speed is None else (lengths / speed.double()).long().clamp(min=1)

    def _extract(
        self, rows: Int[Tensor, " batch"], offsets: Int[Tensor, " batch"], speed: Float[Tensor, " batch"] | None = None
    ) -> Int16[Tensor, "batch 1 crop"]:
        time = offsets[:, None] + torch.arange(self.crop, device=self.device)
        inside = time < self._durations(rows, speed)[:, None]
        found = self._gather(rows, time) if speed is None else self._interpolate(rows, time, speed)
        return torch.where(inside, found, PADDING)[:, None]

    def _gather(self, rows: Int[Tensor, " batch"], time: Int[Tensor, "batch time"]) -> Int16[Tensor, "batch time"]:
        """Samples of each row, the first and the last beyond its ends."""
        time = torch.minimum(time.clamp(min=0), self.lengths[rows][:, None] - 1)
        return self.samples[self.starts[rows][:, None] + time]

    def _interpolate(
        self, rows: Int[Tensor, " batch"], time: Int[Tensor, "batch time"], speed: Float[Tensor, " batch"]
    ) -> Int16[Tensor, "batch time"]:
        """Samples at fractions of a step, by the cubic through the four around each (Catmull and Rom's)."""
        exact = time * speed.double()[:, None]  # single precision counts to an eighth of a step only in 20 s
        whole = exact.floor().long()
        t = (exact - whole).float()
        a, b, c, d = (self._gather(rows, whole + k).float() for k in (-1, 0, 1, 2))
        cubic = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
        return cubic.round().clamp(PADDING + 1, -PADDING - 1).to(torch.int16)


def segment_recordings(samples: Int16[Tensor, " total"], lengths: list[int], names: list[str], crop: int = CROP) -> Recordings:
    """Recordings that lie one after the other in `samples`; long ones are cut into even stretches of at most 20 s."""
    starts, parts, labels, start = list[int](), list[int](), list[str](), 0
    for length, name in zip(lengths, names, strict=True):
        count = -(-length // MAX_LENGTH)
        edges = [start + length * i // count for i in range(count + 1)]
        starts += edges[:-1]
        parts += [b - a for a, b in pairwise(edges)]
        labels += [name] * count
        start += length
    return Recordings(samples, torch.tensor(starts), torch.tensor(parts), tuple(labels), crop)


def is_valid_sample(x: Int16[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1 where there is a sample, 0 where there is padding."""
    return (x != PADDING).float()
