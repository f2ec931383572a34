"""Which temperature to sample at, and behind which code to stop, by pictures that no reported number is made of.

python -m anytime.evaluation.temperatures MODEL --data DIR --inception FILE
python -m anytime.evaluation.temperatures MODEL --data DIR --inception FILE --grid 1 --codes 16 24 28 32 40
python -m anytime.evaluation.temperatures MODEL --data DIR --inception FILE --out FILE      a killed one goes on

`anytime evaluate` compares samples with the training pictures; here other samples are compared with the validation pictures,
at every length. Chosen is the temperature of the least distance, averaged over the lengths, and at this one the most codes
that do not make samples worse.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from anytime import data
from anytime.core.config import read_json
from anytime.core.device import pick_device
from anytime.core.environment import environment
from anytime.core.errors import UserError
from anytime.core.progress import LineReporter, Reporter
from anytime.core.random import derive
from anytime.core.storage import write_json
from anytime.data import Dataset
from anytime.evaluation.evaluate import FRACTIONS, EvaluationSettings, check_shape
from anytime.evaluation.model_card import redact_paths
from anytime.metrics.features import FeatureNetwork
from anytime.metrics.inception import load_feature_network
from anytime.metrics.quality import Row, reference_statistics, sample_rows
from anytime.model import AnytimeModel, load

GRID = (0.8, 0.85, 0.9, 0.95, 1.0)
SWEEP_SAMPLES = 10_000
FID_MARGIN = 0.6
"""FID that more codes may cost on validation pictures, where one point is what we allow in the end: a choice needs a margin."""


def sweep(
    model: AnytimeModel,
    dataset: Dataset,
    network: FeatureNetwork,
    temperatures: Sequence[float] = GRID,
    samples: int = SWEEP_SAMPLES,
    cache: Path | None = None,
    codes: Sequence[int] | None = None,
    reporter: Reporter | None = None,
) -> Iterator[list[Row]]:
    """Samples of every length, those of `evaluate` or `codes`, against the validation pictures, temperature by temperature."""
    check_shape(model, dataset)
    fractions = FRACTIONS if codes is None else [model.code_count(count) / model.length for count in codes]
    real, seed = reference_statistics(dataset.validation, network, cache, reporter), derive(0, "temperatures")
    for temperature in temperatures:
        yield sample_rows(model, fractions, samples, real, network, seed=seed, temperature=temperature, reporter=reporter)


def best_temperature(rows: Sequence[Row], distance: str) -> float:
    """The temperature of the least mean distance."""
    by_temperature: dict[float, list[float]] = {}
    for row in rows:
        by_temperature.setdefault(row["temperature"], []).append(row[distance])
    return min(by_temperature, key=lambda t: sum(by_temperature[t]) / len(by_temperature[t]))


def max_codes(rows: Sequence[Row], distance: str) -> int:
    """The most codes, of those measured, whose distance is at most `RISE` above the least with fewer.

    >>> max_codes([{"codes": 6, "fid": 39}, {"codes": 17, "fid": 27}, {"codes": 22, "fid": 27.5}, {"codes": 28, "fid": 28}],
    ... "fid")
    22
    """
    least, most = math.inf, 0
    for row in sorted(rows, key=lambda row: row["codes"]):
        if row[distance] > least + FID_MARGIN:
            break
        least, most = min(least, row[distance]), row["codes"]
    return most


def choice(rows: Sequence[Row], distance: str) -> dict[str, Any]:
    """Both choices, and what they go by."""
    best = best_temperature(rows, distance)
    there = [row for row in rows if row["temperature"] == best]
    return {
        "chosen": best,
        "by": f"least mean {distance} over {len(there)} lengths",
        "codes": max_codes(there, distance),
        "codes_by": f"most codes at {best:g} whose {distance} is at most {FID_MARGIN} above the least with fewer",
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the choices and the rows behind them, with their circumstances, as JSON; status 2 for a mistake."""
    parser = argparse.ArgumentParser(description="the temperature whose samples are nearest to the validation pictures")
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="a local copy of the set that the model was trained on")
    parser.add_argument("--inception", type=Path, help="the FID network's file")
    parser.add_argument("--grid", type=float, nargs="+", default=GRID, metavar="T")
    parser.add_argument("--codes", type=int, nargs="+", metavar="N", help="lengths; by default five shares of all codes")
    parser.add_argument("--samples", type=int, default=SWEEP_SAMPLES, help="at every temperature")
    parser.add_argument("--smoke", action="store_true", help="a random network in place of Inception: nothing is chosen by it")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--out", type=Path, help="keep the JSON here, too, temperature by temperature, and go on from it")
    given = sys.argv[1:] if argv is None else argv
    try:
        found = _run(parser.parse_args(given), given)
    except UserError as error:
        print(f"temperatures: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1))
    return 0


def _run(arguments: argparse.Namespace, given: Sequence[str]) -> dict[str, Any]:
    """What is to be printed; with --out no temperature is measured that lies there."""
    for temperature in arguments.grid:
        EvaluationSettings(samples=arguments.samples, temperature=temperature)  # says what is wrong with them
    device = pick_device(arguments.device)
    model = load(arguments.model, device)
    if model.is_audio:
        raise UserError(f"temperatures are chosen by pictures, and {arguments.model} makes sound")
    for count in arguments.codes or ():
        model.code_count(count)  # says what is wrong with it, before the data are read
    dataset = data.load(model.config.name, data=arguments.data)
    network = load_feature_network(arguments.inception, arguments.smoke, device)
    facts = {
        "dataset": dataset.name,
        "data": dataset.source,
        "compared_with": f"{len(dataset.validation):,} validation pictures",
        "model": model.hash,
        "command": redact_paths(shlex.join(["python", "-m", "anytime.evaluation.temperatures", *given])),
    }

    def document(rows: list[Row]) -> dict[str, Any]:
        return {**facts, **choice(rows, network.distance), "rows": rows, "environment": environment(device)}

    samples, codes = arguments.samples, arguments.codes
    same = {"model": model.hash, "data": dataset.source, "network": network.name, "samples": samples, "lengths": codes}
    rows = _known(arguments.out, same)
    there = {row["temperature"] for row in rows}
    missing = [temperature for temperature in dict.fromkeys(arguments.grid) if temperature not in there]
    if missing and arguments.out is not None:
        write_json(arguments.out, {"rows": rows, "measured": same})  # refused before an hour's work rather than after it
    for found in sweep(model, dataset, network, missing, samples, codes=codes, reporter=LineReporter()):
        rows += found
        if arguments.out is not None:
            write_json(arguments.out, {**document(rows), "measured": same})
    return document([row for row in rows if row["temperature"] in arguments.grid])


def _known(path: Path | None, same: dict[str, Any]) -> list[Row]:
    """What an earlier call has left, which a killed one goes on from; that of another model or other samples is refused."""
    if path is None or not path.exists():
        return []
    there = read_json(path)
    if there.get("measured") != same:
        raise UserError(f"--out {path} holds other measurements than these; name another file")
    rows: list[Row] = there["rows"]
    return rows


if __name__ == "__main__":
    sys.exit(main())
