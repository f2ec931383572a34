"""Choose the temperature and the number of codes of an image model on validation images, which no reported number uses.

python scripts/choose_temperature.py MODEL --data DIR --inception FILE [--grid 0.7 0.85 1] [--codes 16 20 24]
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from anytime import data
from anytime.core.device import pick_device
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.progress import LineReporter
from anytime.core.random import derive
from anytime.core.results import Row
from anytime.evaluation.evaluate import check_shape
from anytime.evaluation.image import IMAGE_FRACTIONS
from anytime.evaluation.model_card import redact_paths
from anytime.metrics.inception import load_feature_network
from anytime.metrics.quality import reference_statistics, sample_rows
from anytime.model import load

GRID = (0.8, 0.85, 0.9, 0.95, 1.0)
FID_MARGIN = 0.6
"""Largest rise of FID tolerated for more codes, on validation images."""


def best_temperature(rows: Sequence[Row], distance: str) -> float:
    """Return the temperature with the least mean distance over all numbers of codes."""
    by_temperature: dict[float, list[float]] = {}
    for row in rows:
        by_temperature.setdefault(row["temperature"], []).append(row[distance])
    return min(by_temperature, key=lambda t: sum(by_temperature[t]) / len(by_temperature[t]))


def max_codes(rows: Sequence[Row], distance: str) -> int:
    """Return the largest number of codes before the distance rises more than the margin above its lowest value so far."""
    least, most = math.inf, 0
    for row in sorted(rows, key=lambda row: row["codes"]):
        if row[distance] > least + FID_MARGIN:
            break
        least, most = min(least, row[distance]), row["codes"]
    return most


def main(argv: Sequence[str] | None = None) -> int:
    """Print the choice and its rows as JSON; status 2 for a mistake."""
    parser = argparse.ArgumentParser(description="the temperature whose samples are nearest to the validation images")
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="a local copy of the dataset that the model was trained on")
    parser.add_argument("--inception", type=Path, help="the FID network's file")
    parser.add_argument("--grid", type=float, nargs="+", default=GRID, metavar="T", help="temperatures")
    parser.add_argument("--codes", type=int, nargs="+", metavar="N", help="numbers of codes; by default five fractions")
    parser.add_argument("--samples", type=int, default=10_000, help="per temperature")
    parser.add_argument("--smoke", action="store_true", help="a random network instead of Inception, to try the script")
    parser.add_argument("--device", help="cpu or cuda")
    arguments = parser.parse_args(argv)
    try:
        model = load(arguments.model, pick_device(arguments.device))
        if model.is_audio:
            raise UserError(f"{arguments.model} generates audio; name a model of images")
        for temperature in arguments.grid:
            model.settings(temperature)  # refuses one out of range
        codes = arguments.codes or [model.code_count(fraction=fraction) for fraction in IMAGE_FRACTIONS]
        fractions = [model.code_count(count) / model.length for count in codes]
        dataset = data.load(model.config.name, data=arguments.data)
        check_shape(model, dataset)
        network = load_feature_network(arguments.inception, arguments.smoke, model.device)
        real, reporter = reference_statistics(dataset.validation, network), LineReporter()
        rows: list[Row] = []
        for temperature in arguments.grid:
            how = {"seed": derive(0, "temperatures"), "temperature": temperature, "reporter": reporter}
            rows += sample_rows(model, fractions, arguments.samples, real, network, **how)
    except UserError as error:
        print(f"choose_temperature: {error}", file=sys.stderr)
        return 2
    best = best_temperature(rows, network.distance)
    chosen = max_codes([row for row in rows if row["temperature"] == best], network.distance)
    given = sys.argv[1:] if argv is None else argv
    command = redact_paths(shlex.join(["python", "scripts/choose_temperature.py", *given]))
    facts = {"dataset": dataset.name, "data": dataset.source, "model": model.hash, "command": command}
    print(json.dumps({"temperature": best, "codes": chosen, **facts, "rows": rows, "environment": environment(model.device)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
