"""Rebuild the embedded digits from the published MNIST: python scripts/embed_digits.py MNIST_DIR [OUT]"""

from __future__ import annotations

import hashlib
import lzma
import sys
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8

from anytime.core.errors import UserError
from anytime.core.random import permutation
from anytime.core.storage import atomic_path
from anytime.data.digits import FILE, FOLDER, SHA256, Digits
from anytime.data.mnist import IMAGES, LABELS, find_idx, read_idx, to_idx

SEED = 0
TRAIN, TEST = 800, 200  # of each digit

# Literal context bits fitted to 28 x 28 strokes (0.2 % smaller than the preset); CRC32 since the file has its own SHA-256.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]


def choose(labels: UInt8[np.ndarray, " n"], each: int) -> Int[np.ndarray, " chosen"]:
    """Choose `each` examples of every digit at random, in the order of the dataset, so that the digits stay mixed."""
    chosen = []
    for digit in range(10):
        (indices,) = np.nonzero(labels == digit)
        if len(indices) < each:
            raise UserError(f"only {len(indices)} examples are labelled {digit} and {each} are needed: give all of MNIST")
        chosen.append(indices[permutation(len(indices), SEED, digit)[:each].numpy()])
    return np.sort(np.concatenate(chosen))


def build(mnist: Path, each: tuple[int, int] = (TRAIN, TEST)) -> Digits:
    """Choose training digits from the training files and test digits from the test files."""
    images = [read_idx(path, 3) for path in find_idx(mnist, IMAGES)]
    labels = [read_idx(path, 1) for path in find_idx(mnist, LABELS)]
    train, test = (choose(part, count) for part, count in zip(labels, each, strict=True))
    return Digits(images[0][train], labels[0][train], images[1][test], labels[1][test])


def pack(digits: Digits) -> bytes:
    """Write the embedded format, which `Digits.unpack` reads."""
    content = b"".join(map(to_idx, (digits.train, digits.train_labels, digits.test, digits.test_labels)))
    return lzma.compress(content, check=lzma.CHECK_CRC32, filters=FILTERS)


def main(arguments: list[str]) -> None:
    """Build the file, write it and say whether it is the expected one."""
    if not 1 <= len(arguments) <= 2:
        raise UserError("give the folder of MNIST's four idx files: python scripts/embed_digits.py MNIST_DIR [OUT]")
    torch.set_num_threads(1)
    target = Path(arguments[1]) if len(arguments) == 2 else FOLDER / FILE
    packed = pack(build(Path(arguments[0])))
    with atomic_path(target) as partial:
        partial.write_bytes(packed)
    got = hashlib.sha256(packed).hexdigest()
    status = "as expected" if got == SHA256 else f"not {SHA256}: enter it as SHA256 in digits.py"
    print(f"{target}: {len(packed):,} bytes, sha256 {got}, {status}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
