"""The embedded digits: a balanced part of MNIST that needs no download."""

from __future__ import annotations

import hashlib
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from anytime.core.errors import UserError
from anytime.data.dataset import Dataset, ReadOptions, with_random_validation
from anytime.data.mnist import parse_idx

FOLDER = Path(__file__).parent / "embedded"
FILE = "digits.xz"
SHA256 = "4b516571dbe40900402a492ae5d2ca929e114cd0183624421b18d440411adccf"


@dataclass(frozen=True, slots=True)
class Digits:
    """Images with their labels, stored as four consecutive idx files in one xz file."""

    train: UInt8[np.ndarray, "train 28 28"]
    train_labels: UInt8[np.ndarray, " train"]
    test: UInt8[np.ndarray, "test 28 28"]
    test_labels: UInt8[np.ndarray, " test"]

    @staticmethod
    def unpack(packed: bytes) -> Digits:
        """Read the embedded format."""
        rest, arrays = lzma.decompress(packed), []
        for dimensions in (3, 1, 3, 1):
            array, rest = parse_idx(rest, dimensions)
            arrays.append(array)
        return Digits(*arrays)


def load_embedded(folder: Path = FOLDER) -> Digits:
    """Load the embedded file and verify its checksum."""
    path = folder / FILE
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): install the package again") from error
    got = hashlib.sha256(packed).hexdigest()
    if got != SHA256:
        raise UserError(f"{path} is damaged or altered (expected sha256:{SHA256}, got sha256:{got}): install the package again")
    return Digits.unpack(packed)


def read_digits(options: ReadOptions) -> Dataset:
    """Read the images of the embedded digits."""
    digits = load_embedded(options.root)
    train, test = (torch.from_numpy(part.copy()).unsqueeze(1) for part in (digits.train, digits.test))
    return with_random_validation(options.name, train, test, "10,000 MNIST digits included in the package, 1,000 of each")


def read_digits_labels(root: Path) -> tuple[UInt8[np.ndarray, " train"], UInt8[np.ndarray, " test"]]:
    """Read the labels of the embedded digits, training and test."""
    digits = load_embedded(root)
    return digits.train_labels, digits.test_labels
