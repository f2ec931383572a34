"""Recordings of any length in memory, cut into crops of one length.

A crop is int16, [1, crop]. Past the end of a recording shorter than the crop it holds `PADDING`, the one int16 value
that no sample has. Padding thus travels with the data, and losses and metrics can mask it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor

CROP = 15_360  # samples: the paper's length, 0.96 s at 16 kHz
PADDING = -32_768
_CHUNK = 1000  # crops cut at a time
MAX_LENGTH = 20 * 16_000  # samples: a longer recording is split, or an epoch would see one crop of an hour


@dataclass(frozen=True, slots=True)
class Recordings:
    """Segments of one long array of samples."""

    samples: Int16[Tensor, " total"]
    starts: Int[Tensor, " n"]
    lengths: Int[Tensor, " n"]
    names: tuple[str, ...]
    """file names, one for each segment"""
    crop: int = CROP

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice) -> Recordings:
        return replace(self, starts=self.starts[rows], lengths=self.lengths[rows], names=self.names[rows])

    def select(self, names: Set[str]) -> Recordings:
        """Return the segments of these files."""
        rows = [row for row, name in enumerate(self.names) if name in names]
        index = torch.tensor(rows, dtype=torch.long)
        return replace(self, starts=self.starts[index], lengths=self.lengths[index], names=tuple(self.names[r] for r in rows))

    @property
    def shape(self) -> torch.Size:
        """The shape of one crop of each."""
        return torch.Size((len(self), 1, self.crop))

    @property
    def nbytes(self) -> int:
        """Bytes that the samples take."""
        return self.samples.nbytes

    @property
    def device(self) -> torch.device:
        """The device of the samples."""
        return self.samples.device

    @property
    def num_short(self) -> int:
        """Number of recordings shorter than a crop, which are padded."""
        return int((self.lengths < self.crop).sum())

    def to(self, device: torch.device) -> Recordings:
        """Copy to a device."""
        return replace(self, samples=self.samples.to(device), starts=self.starts.to(device), lengths=self.lengths.to(device))

    def crops(
        self, rows: Int[Tensor, " batch"], position: Float[Tensor, " batch"], speed: Float[Tensor, " batch"] | None = None
    ) -> Int16[Tensor, "batch 1 crop"]:
        """Cut one crop of each row; `position` in (0, 1) selects among its possible starts. A short recording is padded.

        At a `speed` of 1.1 a recording is a tenth faster and higher.
        """
        num_starts = (self._durations(rows, speed) - self.crop + 1).clamp(min=1)
        return self._extract(rows, (position.double() * num_starts).long(), speed)

    def tiles(
        self, position: Float[Tensor, " n"] | None = None, speed: Float[Tensor, " n"] | None = None
    ) -> Int16[Tensor, "crops 1 crop"]:
        """Cut every recording into consecutive crops; the remainder of each is unused.

        The first crop starts with the recording, or at `position` in (0, 1) of the remainder.
        """
        rows, counts = self.tile_rows(speed), self._tile_counts(speed)
        first = counts.cumsum(0) - counts
        offsets = (torch.arange(len(rows), device=self.device) - first[rows]) * self.crop
        if position is not None:
            remainder = (self._durations(self._all_rows, speed) - counts * self.crop + 1).clamp(min=1)
            offsets = offsets + (position.double() * remainder).long()[rows]
        # In chunks: the indices of all samples take four to forty times the memory of the samples themselves.
        chunks = zip(rows.split(_CHUNK), offsets.split(_CHUNK), strict=True)
        return torch.cat([self._extract(r, o, None if speed is None else speed[r]) for r, o in chunks])

    def first_crops(self) -> Int16[Tensor, "n 1 crop"]:
        """Return the first crop of every recording."""
        return torch.cat([self._extract(rows, torch.zeros_like(rows)) for rows in self._all_rows.split(_CHUNK)])

    def tile_rows(self, speed: Float[Tensor, " n"] | None = None) -> Int[Tensor, " crops"]:
        """Return the recording that each tile is cut from."""
        return torch.repeat_interleave(self._all_rows, self._tile_counts(speed))

    @property
    def _all_rows(self) -> Int[Tensor, " n"]:
        return torch.arange(len(self), device=self.device)

    def _tile_counts(self, speed: Float[Tensor, " n"] | None) -> Int[Tensor, " n"]:
        return (self._durations(self._all_rows, speed) // self.crop).clamp(min=1)

    def _durations(self, rows: Int[Tensor, " batch"], speed: Float[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
        """Return the number of samples of each row at its speed."""
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
        """Return samples of each row; past its ends, its first or last sample."""
        time = torch.minimum(time.clamp(min=0), self.lengths[rows][:, None] - 1)
        return self.samples[self.starts[rows][:, None] + time]

    def _interpolate(
        self, rows: Int[Tensor, " batch"], time: Int[Tensor, "batch time"], speed: Float[Tensor, " batch"]
    ) -> Int16[Tensor, "batch time"]:
        """Resample by Catmull-Rom splines: the cubic through the four samples around each position."""
        exact = time * speed.double()[:, None]  # float32 resolves only an eighth of a sample after 20 s
        whole = exact.floor().long()
        t = (exact - whole).float()
        a, b, c, d = (self._gather(rows, whole + k).float() for k in (-1, 0, 1, 2))
        cubic = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
        return cubic.round().clamp(PADDING + 1, -PADDING - 1).to(torch.int16)


def segment_recordings(samples: Int16[Tensor, " total"], lengths: list[int], names: list[str], crop: int = CROP) -> Recordings:
    """Split consecutive recordings in `samples`; long ones become equal segments of at most 20 s."""
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
    """Return 1 for samples and 0 for padding."""
    return (x != PADDING).float()
