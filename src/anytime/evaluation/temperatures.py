"""Which temperature to sample at, and behind which code to stop, by pictures that no reported number is made of.

python -m anytime.evaluation.temperatures MODEL --data DIR --inception FILE
python -m anytime.evaluation.temperatures MODEL --data DIR --inception FILE --grid 1 --codes 16 24 28 32 40

`anytime evaluate` compares samples with the training pictures; here other samples are compared with the validation pictures,
at every length. Chosen is the temperature of the least distance, averaged over the lengths.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from anytime import data
from anytime.data import Dataset
from anytime.device import pick_device
from anytime.errors import UserError
from anytime.evaluation.assessment import FRACTIONS, Settings, check_shape
from anytime.evaluation.card import portable
from anytime.evaluation.features import FeatureNetwork
from anytime.evaluation.inception import network_for
from anytime.evaluation.quality import Row, reference, sample_rows
from anytime.model import AnytimeModel, load
from anytime.randomness import derive
from anytime.training.folder import environment

GRID = (0.8, 0.85, 0.9, 0.95, 1.0)
SAMPLES = 10_000


def measured(
    model: AnytimeModel,
    dataset: Dataset,
    network: FeatureNetwork,
    temperatures: Sequence[float] = GRID,
    samples: int = SAMPLES,
    cache: Path | None = None,
    codes: Sequence[int] | None = None,
) -> list[Row]:
    """Samples at every temperature and length against the validation pictures; lengths are those of `evaluate`, or `codes`."""
    check_shape(model, dataset)
    shares = FRACTIONS if codes is None else [model.code_count(count) / model.length for count in codes]
    real, seed = reference(dataset.validation, network, cache), derive(0, "temperatures")
    return [
        row
        for temperature in temperatures
        for row in sample_rows(model, shares, samples, real, network, seed=seed, temperature=temperature)
    ]


def chosen(rows: Sequence[Row], distance: str) -> float:
    """The temperature of the least mean distance."""
    by_temperature: dict[float, list[float]] = {}
    for row in rows:
        by_temperature.setdefault(row["temperature"], []).append(row[distance])
    return min(by_temperature, key=lambda t: sum(by_temperature[t]) / len(by_temperature[t]))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the choice and the rows behind it, with their circumstances, as JSON; status 2 for a mistake."""
    parser = argparse.ArgumentParser(description="the temperature whose samples are nearest to the validation pictures")
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="a local copy of the set that the model was trained on")
    parser.add_argument("--inception", type=Path, help="the FID network's file")
    parser.add_argument("--grid", type=float, nargs="+", default=GRID, metavar="T")
    parser.add_argument("--codes", type=int, nargs="+", metavar="N", help="lengths; by default five shares of all codes")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="at every temperature")
    parser.add_argument("--smoke", action="store_true", help="a random network in place of Inception: nothing is chosen by it")
    parser.add_argument("--device", help="cpu or cuda")
    arguments = parser.parse_args(argv)
    try:
        for temperature in arguments.grid:
            Settings(samples=arguments.samples, temperature=temperature)  # says what is wrong with them
        device = pick_device(arguments.device)
        model = load(arguments.model, device)
        if model.is_sound:
            raise UserError(f"temperatures are chosen by pictures, and {arguments.model} makes sound")
        for count in arguments.codes or ():
            model.code_count(count)  # says what is wrong with it, before the data are read
        dataset = data.load(model.config.name, data=arguments.data)
        network = network_for(arguments.inception, arguments.smoke, device)
        rows = measured(model, dataset, network, arguments.grid, arguments.samples, codes=arguments.codes)
    except UserError as error:
        print(f"temperatures: {error}", file=sys.stderr)
        return 2
    facts = {
        "dataset": dataset.name,
        "data": dataset.source,
        "compared_with": f"{len(dataset.validation):,} validation pictures",
    }
    given = sys.argv[1:] if argv is None else argv
    facts |= {"model": model.hash, "command": portable(shlex.join(["python", "-m", "anytime.evaluation.temperatures", *given]))}
    lengths = len(rows) // len(arguments.grid)
    choice = {"chosen": chosen(rows, network.distance), "by": f"least mean {network.distance} over {lengths} lengths"}
    print(json.dumps({**facts, **choice, "rows": rows, "environment": environment(device)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
