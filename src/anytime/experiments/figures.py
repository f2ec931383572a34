"""Figures that are missing beside their results files, as after work on a machine without matplotlib.

python -m anytime.experiments.figures results            those that are missing
python -m anytime.experiments.figures results --all      all of them
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anytime.experiments.reproduce import draw


def without_figure(folder: Path, redraw_all: bool = False) -> list[Path]:
    """Results files without a figure."""
    return [path for path in sorted(folder.glob("*/*.json")) if redraw_all or not path.with_suffix(".png").exists()]


def main() -> None:
    parser = argparse.ArgumentParser(description="draw the figures of results files")
    parser.add_argument("results", type=Path)
    parser.add_argument("--all", action="store_true", help="those that are there, too")
    arguments = parser.parse_args()
    for path in without_figure(arguments.results, arguments.all):
        print(draw(path))


if __name__ == "__main__":
    main()
