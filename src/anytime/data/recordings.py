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
ABSENT = -32_768
LONGEST = 20 * 16_000  # samples: a longer recording counts as several, or an epoch would see one crop of an hour


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

    def only(self, rows: list[int]) -> Recordings:
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
    def short(self) -> int:
        """How many are shorter than a crop, and padded."""
        return int((self.lengths < self.crop).sum())

    def to(self, device: torch.device) -> Recordings:
        return replace(self, samples=self.samples.to(device), starts=self.starts.to(device), lengths=self.lengths.to(device))

    def crops(self, rows: Int[Tensor, " batch"], place: Float[Tensor, " batch"]) -> Int16[Tensor, "batch 1 crop"]:
        """One crop of each row; `place` in (0, 1) runs over the starts it can have. A short recording is padded at its end."""
        room = (self.lengths[rows] - self.crop + 1).clamp(min=1)
        return self._cut(rows, (place.double() * room).long())

    def tiles(self) -> Int16[Tensor, "n 1 crop"]:
        """Every recording cut into crops one after the other, the same at every call; what is left over is not used."""
        counts = (self.lengths // self.crop).clamp(min=1)
        rows = torch.repeat_interleave(torch.arange(len(self), device=self.device), counts)
        first = counts.cumsum(0) - counts
        return self._cut(rows, (torch.arange(len(rows), device=self.device) - first[rows]) * self.crop)

    def _cut(self, rows: Int[Tensor, " batch"], offsets: Int[Tensor, " batch"]) -> Int16[Tensor, "batch 1 crop"]:
        time = offsets[:, None] + torch.arange(self.crop, device=self.device)
        inside = time < self.lengths[rows][:, None]
        found = self.samples[(self.starts[rows][:, None] + time).clamp(max=len(self.samples) - 1)]
        return torch.where(inside, found, ABSENT)[:, None]


def stretches(samples: Int16[Tensor, " total"], lengths: list[int], names: list[str], crop: int = CROP) -> Recordings:
    """Recordings that lie one after the other in `samples`; long ones are cut into even stretches of at most 20 s."""
    starts, parts, labels, start = list[int](), list[int](), list[str](), 0
    for length, name in zip(lengths, names, strict=True):
        count = -(-length // LONGEST)
        edges = [start + length * i // count for i in range(count + 1)]
        starts += edges[:-1]
        parts += [b - a for a, b in pairwise(edges)]
        labels += [name] * count
        start += length
    return Recordings(samples, torch.tensor(starts), torch.tensor(parts), tuple(labels), crop)


def present(x: Int16[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1 where there is a sample, 0 where there is padding."""
    return (x != ABSENT).float()
