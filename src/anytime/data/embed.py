"""Rebuild the embedded digits: `python -m anytime.data.embed MNIST_DIR [OUT]`."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8

from anytime.core.errors import UserError
from anytime.core.random import permutation
from anytime.core.storage import atomic_path
from anytime.data.digits import FILE, FOLDER, SHA256, Digits
from anytime.data.mnist import IMAGES, LABELS, find_idx, read_idx

SEED = 0
TRAIN, TEST = 800, 200  # of each digit


def choose(labels: UInt8[np.ndarray, " n"], each: int, seed: int = SEED) -> Int[np.ndarray, " chosen"]:
    """`each` examples of every digit, drawn by seed, in the order of the set so that the digits stay mixed."""
    chosen = []
    for digit in range(10):
        (indices,) = np.nonzero(labels == digit)
        if len(indices) < each:
            raise UserError(f"only {len(indices)} examples are labelled {digit} and {each} are needed: give all of MNIST")
        chosen.append(indices[permutation(len(indices), seed, digit)[:each].numpy()])
    return np.sort(np.concatenate(chosen))


def build(mnist: Path, each: tuple[int, int] = (TRAIN, TEST)) -> Digits:
    """The chosen part of the four published files: training digits from training, test digits from test."""
    images = [read_idx(path, 3) for path in find_idx(mnist, IMAGES)]
    labels = [read_idx(path, 1) for path in find_idx(mnist, LABELS)]
    train, test = (choose(part, count) for part, count in zip(labels, each, strict=True))
    return Digits(images[0][train], labels[0][train], images[1][test], labels[1][test])


def main(arguments: list[str]) -> None:
    if not 1 <= len(arguments) <= 2:
        raise UserError("give the folder of MNIST's four idx files: python -m anytime.data.embed MNIST_DIR [OUT]")
    torch.set_num_threads(1)
    target = Path(arguments[1]) if len(arguments) == 2 else FOLDER / FILE
    packed = build(Path(arguments[0])).pack()
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
