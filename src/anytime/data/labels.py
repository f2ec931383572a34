"""The class labels of an image dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from anytime.core.errors import UserError
from anytime.data.dataset import Dataset, split_validation

NUM_CLASSES = 10


@dataclass(frozen=True, slots=True)
class ImageLabels:
    """A class from 0 to 9 for every image, in the sets and the order of the `Dataset` of the same name."""

    train: UInt8[Tensor, " train"]
    validation: UInt8[Tensor, " validation"]
    test: UInt8[Tensor, " test"]

    def subset(self, train: int, validation: int) -> ImageLabels:
        """Keep the labels of `Dataset.subset`."""
        return ImageLabels(self.train[:train], self.validation[:validation], self.test[:validation])

    def check(self, dataset: Dataset) -> None:
        """Refuse labels of other images, judged by their number."""
        ours = [len(part) for part in (self.train, self.validation, self.test)]
        theirs = [len(part) for part in (dataset.train, dataset.validation, dataset.held_out)]
        if ours != theirs:
            raise UserError(f"{sum(ours):,} labels do not match the {sum(theirs):,} images of {dataset.name}: correct `data`")


def split_labels(name: str, train: UInt8[np.ndarray, " train"], test: UInt8[np.ndarray, " test"]) -> ImageLabels:
    """Split the published labels as the images of dataset `name` are split."""
    if max(train.max(), test.max()) >= NUM_CLASSES:
        raise UserError(f"the labels of {name} exceed {NUM_CLASSES - 1}: replace the files with the published ones")
    rest, validation = split_validation(torch.from_numpy(train.copy()))
    return ImageLabels(rest, validation, torch.from_numpy(test.copy()))
