"""A dataset in memory, and the split of its validation set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int16, Int64, Shaped, UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.random import permutation
from anytime.data.image_shards import ImageShards
from anytime.data.recordings import Recordings

NUM_CLASSES = 10  # of every dataset with labels
MIN_TRAIN = 2  # published training examples: one to train on, one for validation
VALIDATION = 5_000  # examples, or a tenth of a dataset with fewer than 50,000

Examples = UInt8[Tensor, "n channel height width"] | Int16[Tensor, "n channel time"]
"""Images as bytes, or audio crops as int16."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The class, 0 to 9, of every image, or of every training recording and every crop of the other sets."""

    train: Int64[Tensor, " train"]
    validation: Int64[Tensor, " validation"]
    test: Int64[Tensor, " test"]
    """empty if there is no test set"""

    def subset(self, train: int, validation: int) -> Labels:
        """Keep the labels of `Dataset.subset`."""
        return Labels(self.train[:train], self.validation[:validation], self.test[:validation])

    def check(self, dataset: Dataset) -> None:
        """Refuse labels that differ in number from the images of a dataset."""
        ours = [len(part) for part in (self.train, self.validation, self.test)]
        theirs = [len(part) for part in (dataset.train, dataset.validation, dataset.held_out)]
        if ours != theirs:
            raise UserError(f"{sum(ours):,} labels do not match the {sum(theirs):,} images of {dataset.name}: correct `data`")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images as bytes, or audio as int16, in sets that share no example."""

    name: str
    train: UInt8[Tensor, "train channel height width"] | Recordings | ImageShards
    """for audio, whole recordings: every epoch takes new crops; images in shards are decoded on demand"""
    validation: UInt8[Tensor, "validation channel height width"] | Int16[Tensor, "validation channel time"]
    """never trained on; selects checkpoints"""
    test: UInt8[Tensor, "test channel height width"] | Int16[Tensor, "test channel time"] | None
    """selects nothing; None if the dataset has no test set"""
    source: str
    """one phrase for logs and results: where the data came from, how it was cropped and split"""
    synthetic: bool = False
    random_validation: bool = False
    """whether the validation set was taken at random from the published training set"""
    labels: Labels | None = None
    """of spoken digits; only the audio classifier uses them"""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an example: (channel, height, width) or (channel, time)."""
        return tuple(self.train.shape[1:])

    @property
    def is_audio(self) -> bool:
        """Whether the examples are audio."""
        return isinstance(self.train, Recordings)

    @property
    def images(self) -> UInt8[Tensor, "train channel height width"]:
        """The training set of an image dataset; of one in shards, at most 50,000 images."""
        if isinstance(self.train, ImageShards):
            return self.train.reference
        assert isinstance(self.train, Tensor), f"{self.name} holds audio"
        return self.train

    @property
    def held_out(self) -> Examples:
        """The examples that metrics are computed on: the test set, or the validation set if there is none."""
        return self.validation if self.test is None else self.test

    @property
    def published_train(self) -> Examples:
        """The published training set, the reference of FID: it includes a random validation set, unless that is held out.

        For audio it is the recordings cut into consecutive crops.
        """
        if isinstance(self.train, Recordings):
            return self.train.tiles()
        return torch.cat([self.images, self.validation]) if self.random_validation and self.test is not None else self.images

    def subset(self, train: int, validation: int) -> Dataset:
        """Keep the first `train` training examples and the first `validation` of the validation and the test set."""
        parts = self.train[:train], self.validation[:validation]
        test = None if self.test is None else self.test[:validation]
        source = f"{self.source}; the first {len(parts[0]):,} for training and {len(parts[1]):,} for validation"
        labels = None if self.labels is None else self.labels.subset(train, validation)
        return replace(self, train=parts[0], validation=parts[1], test=test, source=source, labels=labels)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The arguments of a dataset reader."""

    name: str
    root: Path  # the folder or zip file that holds the published files
    size: int  # height and width of the images
    cache: Path  # for decoded arrays
    skip_bad: bool = False  # leave out files that cannot be read; for folders


def check_counts(root: Path, train: int, test: int) -> None:
    """Refuse published files with too few examples to split."""
    if train < MIN_TRAIN or test < 1:
        needed = f"at least {MIN_TRAIN} and 1 are needed"
        raise UserError(f"{root} holds {train:,} training and {test:,} test examples and {needed}: correct `data`")


def split_validation(train: Shaped[Tensor, "n ..."]) -> tuple[Shaped[Tensor, "rest ..."], Shaped[Tensor, "validation ..."]]:
    """Split off 5,000 examples (a tenth of a smaller dataset) at random by seed 0; both parts keep their order."""
    count = min(VALIDATION, max(1, len(train) // 10))
    is_validation = torch.zeros(len(train), dtype=torch.bool)
    is_validation[permutation(len(train), 0)[:count]] = True
    return train[~is_validation], train[is_validation]


def split_labels(name: str, train: UInt8[np.ndarray, " train"], test: UInt8[np.ndarray, " test"]) -> Labels:
    """Split the published labels as `with_random_validation` splits the images of dataset `name`."""
    if max(train.max(), test.max()) >= NUM_CLASSES:
        raise UserError(f"the labels of {name} exceed {NUM_CLASSES - 1}: replace the files with the published ones")
    rest, validation = split_validation(torch.from_numpy(train.astype(np.int64)))
    return Labels(rest, validation, torch.from_numpy(test.astype(np.int64)))


def with_random_validation(name: str, train: Tensor, test: Tensor | None, source: str) -> Dataset:
    """Return a dataset whose publishers define no validation set."""
    rest, validation = split_validation(train)
    source = f"{source}; {len(validation):,} of {len(train):,} training images, chosen by seed 0, for validation"
    return Dataset(name, rest, validation, test, source, random_validation=True)
