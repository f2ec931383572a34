"""Check the FID protocol: FID between the training and the held-out images of a dataset, against the published number.

python scripts/check_fid.py cifar10 --data DIR --inception FILE      needs nothing beyond the core
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from anytime import data
from anytime.core.device import pick_device
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.results import Row
from anytime.data import Dataset
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.inception import Inception, find_inception
from anytime.metrics.quality import data_row, reference_statistics

PUBLISHED_FID = {"cifar10": (3.15, 0.02)}
"""FID between training and test set, and the tolerance (law 8 in docs/method.md)."""


def held_out_row(dataset: Dataset, network: FeatureNetwork, cache: Path | None = None) -> Row:
    """Compare the held-out images with the published training set."""
    return data_row(dataset.held_out, reference_statistics(dataset.published_train, network, cache), network, cache)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the row and its circumstances as JSON; status 1 if the published number is missed, 2 for a mistake."""
    parser = argparse.ArgumentParser(description="FID between a dataset's training and held-out images")
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, help="a local copy of the dataset")
    parser.add_argument("--inception", type=Path, help="the file of the FID network")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--exact", action="store_true", help="no TF32 on a GPU")
    arguments = parser.parse_args(argv)
    try:
        device = pick_device(arguments.device)
        dataset = data.load(arguments.name, data=arguments.data)
        row = held_out_row(dataset, Inception(find_inception(arguments.inception), device, tf32=not arguments.exact))
    except UserError as error:
        print(f"check_fid: {error}", file=sys.stderr)
        return 2
    expected, tolerance = PUBLISHED_FID.get(arguments.name, (None, 0.0))
    holds = None if expected is None else abs(row["fid"] - expected) <= tolerance
    facts = {"dataset": dataset.name, "data": dataset.source, "expected": expected, "tolerance": tolerance, "holds": holds}
    print(json.dumps({**facts, "row": row, "environment": environment(device)}))
    return 1 if holds is False else 0


if __name__ == "__main__":
    sys.exit(main())
