"""Decide the claims of the committed results again from their rows, after a rule has changed. No number is touched.

python scripts/decide_results.py            write the verdicts
python scripts/decide_results.py --check    change nothing; exit 1 and name the files whose verdicts do not follow
"""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import replace
from pathlib import Path

from anytime.core.results import Results, read, results_files
from anytime.experiments.registry import find

RESULTS = Path(__file__).resolve().parents[1] / "results"


def decided(results: Results) -> Results:
    """Return results with the verdicts that follow from their rows today."""
    return replace(results, verdicts=importlib.import_module(find(results.experiment).module).decide(results.rows))


def outdated(folder: Path) -> list[Path]:
    """Return the files whose verdicts are not those of today's rules."""
    return [path for path in results_files(folder) if decided(found := read(path)) != found]


def main(argv: list[str] | None = None, folder: Path = RESULTS) -> int:
    """Write or check the verdicts; return the exit status."""
    parser = argparse.ArgumentParser(description="Decide the claims of the committed results again.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a verdict does not follow")
    check = parser.parse_args(argv).check
    late = outdated(folder)
    for path in late:
        if not check:
            decided(read(path)).write(folder)
        print(f"{path.parent.name}/{path.name}: " + ("verdicts do not follow from the rows" if check else "decided again"))
    return 1 if check and late else 0


if __name__ == "__main__":
    sys.exit(main())
