"""Add cached measurements of other machines or processes to those that are kept with the results.

python scripts/merge_measurements.py FOLDER [FOLDER ...] [--into results/measured] [--newer]

FOLDER is the `measured` folder of a `--runs-dir`. `anytime reproduce` finds what is kept, and neither trains nor measures it
again. A measurement with other facts replaces the kept one, and is named. Of two measurements with the same facts and the
same rows the kept one stays. With other rows, as of a run that was trained again, they are refused, unless --newer takes
FOLDER's. So is a measurement with uncommitted changes, or with an unknown version of the code: nobody could repeat it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from anytime.core.errors import UserError
from anytime.core.results import MEASURED
from anytime.experiments.cache import Measurement, MeasurementCache, changed_facts

KEPT = Path(__file__).resolve().parents[1] / "results" / MEASURED


def merge(sources: Sequence[Path], target: Path, newer: bool = False) -> list[str]:
    """Add the measurements of all files in `sources` to the files of the same names in `target`; return what changed."""
    for folder in sources:
        if not any(folder.glob("*.json")):
            raise UserError(f"{folder} holds no measurements; give the `measured` folder of a runs directory")
    return [line for folder in sources for path in sorted(folder.glob("*.json")) for line in merge_file(path, target, newer)]


def merge_file(path: Path, target: Path, newer: bool = False) -> list[str]:
    """Add the measurements of one file; return a line for each that changed."""
    kept, lines = MeasurementCache(target / path.name), list[str]()
    before = kept.measurements()
    for name, measurement in MeasurementCache(path).measurements().items():
        if not path.stem.endswith("-smoke"):  # whose numbers mean nothing
            check_commits(measurement, f"{path}: {name!r}")
        old = before.get(name)
        if old is not None and (old.facts, old.rows) == (measurement.facts, measurement.rows):
            continue
        if old is not None and old.facts == measurement.facts and not newer:
            text = f"{path} and {kept.path} hold two measurements of {name!r}"
            raise UserError(f"{text}; remove one of them, or take the first by --newer")
        kept.store(name, measurement)
        others = [] if old is None else changed_facts(old.facts, measurement.facts)
        lines.append(f"{path.name}, {name}: " + ("added" if old is None else f"replaced: other {', '.join(others) or 'rows'}"))
    return lines


def check_commits(measurement: Measurement, name: str) -> None:
    """Refuse a measurement that was not made, or whose run was not trained, from committed code."""
    commits = [measurement.environment.get("commit")]
    commits += [] if measurement.training is None else [measurement.training.commit]
    for commit in commits:
        if not commit or str(commit).endswith("-dirty"):
            how = "with uncommitted changes" if commit else "with an unknown version of the code"
            raise UserError(f"{name} was made {how}; measure it again from a commit (without git: ANYTIME_COMMIT names it)")


def main(argv: list[str] | None = None) -> int:
    """Merge the folders; return the exit status."""
    parser = argparse.ArgumentParser(description="Keep cached measurements with the results.")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="the `measured` folder of a runs directory")
    parser.add_argument(
        "--into", type=Path, default=KEPT, metavar="DIR", help="where they are kept; by default results/measured"
    )
    parser.add_argument("--newer", action="store_true", help="of two measurements with the same facts, keep that of FOLDER")
    arguments = parser.parse_args(argv)
    try:
        lines = merge(arguments.folders, arguments.into, arguments.newer)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines) or "nothing new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
