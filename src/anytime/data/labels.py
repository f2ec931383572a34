"""What the pictures show, for sets that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.data import digits
from anytime.data.cache import cache_dir
from anytime.data.dataset import Dataset, split_validation
from anytime.data.mnist import LABELS, find_idx, read_idx
from anytime.data.registry import DATASETS, find, locate

NUM_CLASSES = 10


@dataclass(frozen=True, slots=True)
class ImageLabels:
    """A class from 0 to 9 for every picture, in the parts and the order of the `Dataset` of the same name."""

    train: UInt8[Tensor, " train"]
    validation: UInt8[Tensor, " validation"]
    test: UInt8[Tensor, " test"]

    def subset(self, train: int, validation: int) -> ImageLabels:
        """As `Dataset.subset`."""
        return ImageLabels(self.train[:train], self.validation[:validation], self.test[:validation])

    def check(self, dataset: Dataset) -> None:
        """Refuse labels of other pictures, as far as their numbers tell."""
        ours = [len(part) for part in (self.train, self.validation, self.test)]
        theirs = [len(part) for part in (dataset.train, dataset.validation, dataset.held_out)]
        if ours != theirs:
            raise UserError(f"{sum(ours):,} labels do not fit the {sum(theirs):,} pictures of {dataset.name}: correct --data")


def _digits(root: Path) -> tuple[UInt8[np.ndarray, " train"], UInt8[np.ndarray, " test"]]:
    found = digits.load_embedded(root)
    return found.train_labels, found.test_labels


def _idx(root: Path) -> tuple[UInt8[np.ndarray, " train"], UInt8[np.ndarray, " test"]]:
    train, test = (read_idx(path, 1) for path in find_idx(root, LABELS))
    return train, test


LABEL_READERS: dict[str, Callable[[Path], tuple[np.ndarray, np.ndarray]]] = {"digits": _digits, "idx": _idx}


def load_labels(name: str, *, data: Path | None = None, cache: Path | None = None) -> ImageLabels:
    """The labels of a set by name, found where `load` finds its pictures."""
    entry = find(name)
    if entry.reader not in LABEL_READERS:
        known = ", ".join(sorted(known.name for known in DATASETS.values() if known.reader in LABEL_READERS))
        raise UserError(f"the labels of {name} are not read here; those of {known} are")
    train, test = LABEL_READERS[entry.reader](locate(entry, data, cache or cache_dir()))
    if max(train.max(), test.max()) >= NUM_CLASSES:
        raise UserError(f"the labels of {name} go beyond {NUM_CLASSES - 1}: replace the files with the published ones")
    rest, random_validation = split_validation(torch.from_numpy(train.copy()))
    return ImageLabels(rest, random_validation, torch.from_numpy(test.copy()))
