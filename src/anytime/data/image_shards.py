"""Images that stay in tar shards: batches are decoded when they are needed, so that a dataset may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from torch import Tensor

from anytime.core.random import permutation
from anytime.data import image_io
from anytime.data.augment import augment_images
from anytime.data.tar_shards import ShardIndex

CHUNK = 500
"""Images decoded at a time where all of them are read."""
REFERENCE, REFERENCE_BYTES = 50_000, 1 << 30
"""The most images, and their bytes, that `ImageShards.reference` keeps in memory."""


class ImageShards:
    """Training images in tar shards, as a sequence that is decoded on demand.

    Memory holds about 60 bytes for each image and a few batches, whatever the number of images.
    """

    device = torch.device("cpu")
    """Batches are decoded here and moved one by one."""

    def __init__(self, index: ShardIndex, rows: Int64[Tensor, " n"], size: int, channels: int) -> None:
        self.index, self.rows, self.size, self.channels = index, rows, size, channels

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice) -> ImageShards:
        """Return a part of the images, still in their shards."""
        return ImageShards(self.index, self.rows[rows], self.size, self.channels)

    @property
    def shape(self) -> torch.Size:
        """The shape of all images together."""
        return torch.Size((len(self), self.channels, self.size, self.size))

    @property
    def nbytes(self) -> int:
        """Bytes that all decoded images would take."""
        return self.shape.numel()

    def to(self, device: torch.device) -> ImageShards:
        """Return these images: they stay in their shards."""
        return self

    def read(self, rows: Int[Tensor, " batch"]) -> UInt8[Tensor, "batch channel height width"]:
        """Decode some of the images, by their position in this sequence."""
        return decode_rows(self.index, self.rows[rows.cpu()], self.size, self.channels)

    def read_later(self, rows: Int[Tensor, " batch"]) -> Future[Tensor]:
        """Decode some of the images in the background."""
        return self._background.submit(self.read, rows)

    @cached_property
    def _background(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "shards")

    def load(self) -> UInt8[Tensor, "n channel height width"]:
        """Decode all of the images into memory."""
        return torch.cat(list(self.chunks()))

    def chunks(self, augmentation: int = 0) -> Iterator[UInt8[Tensor, "chunk channel height width"]]:
        """Decode all images in order, a chunk at a time, with an augmentation by its number."""
        for rows in torch.arange(len(self)).split(CHUNK):
            yield augment_images(self.read(rows), augmentation)

    @cached_property
    def reference(self) -> UInt8[Tensor, "reference channel height width"]:
        """At most 50,000 of the images and 1 GiB, chosen by seed 0, in memory: what metrics compare with."""
        count = min(len(self), REFERENCE, max(1, REFERENCE_BYTES // self.shape[1:].numel()))
        return ImageShards(self.index, self.rows[permutation(len(self), 0)[:count]], self.size, self.channels).load()


class AugmentedShards:
    """Images in shards repeated `count` times, each time with another augmentation, decoded on demand."""

    device = ImageShards.device

    def __init__(self, images: ImageShards, count: int) -> None:
        self.images, self.count = images, count

    def __len__(self) -> int:
        return self.count * len(self.images)

    def __getitem__(self, rows: Int[Tensor, " batch"]) -> UInt8[Tensor, "batch channel height width"]:
        numbers, x = rows // len(self.images), self.images.read(rows % len(self.images))
        for number in numbers.unique().tolist():
            x[numbers == number] = augment_images(x[numbers == number], number)
        return x

    def chunks(self) -> Iterator[UInt8[Tensor, "chunk channel height width"]]:
        """Decode all of them in order, a chunk at a time."""
        for number in range(self.count):
            yield from self.images.chunks(number)


def decode_rows(index: ShardIndex, rows: Int64[Tensor, " n"], size: int, channels: int) -> UInt8[Tensor, "n channel size size"]:
    """Decode images in threads: Pillow decodes without holding the interpreter's lock."""
    pixels = np.empty((len(rows), channels, size, size), np.uint8)

    def fill(position: int, row: int) -> None:
        pixels[position] = image_io.decode(index.member(row), size, channels).pixels

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for _ in pool.map(fill, range(len(rows)), rows.tolist()):
            pass
    return torch.from_numpy(pixels)
