"""Build what README and docs say about results, options and modules.

python scripts/build_docs.py            draw missing figures, write the generated pages, fill the marked tables
python scripts/build_docs.py --check    change nothing; exit 1 and name the pages that are out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the package `pages` beside this file

from anytime.core.errors import UserError
from anytime.core.results import results_files
from anytime.core.storage import write_atomic
from anytime.experiments.reproduce import draw
from pages import choices, paper, reference, results, tables

ROOT = Path(__file__).resolve().parents[1]


def generated(root: Path = ROOT) -> dict[Path, str]:
    """Return every page that this program writes, with its text."""
    docs = root / "docs"
    pages = {
        docs / "results.md": results.page(root / "results", docs / "results.md"),
        docs / "paper.md": paper.page(root / "results", docs / "paper.md"),
        docs / "choices.md": choices.page(root / "results", docs / "choices.md"),
        docs / "reference.md": reference.page(root),
    }
    written = [root / "README.md", root / "SECURITY.md", *sorted(docs.glob("*.md"))]
    return pages | {path: tables.fill(path.read_text(encoding="utf-8"), root) for path in written if path not in pages}


def outdated(root: Path = ROOT) -> list[Path]:
    """Return the pages whose text on disk is not what this program would write."""
    return [path for path, text in generated(root).items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def missing_figures(folder: Path) -> list[Path]:
    """Return results files that have no figure, as after a run on a machine without matplotlib."""
    return [path for path in results_files(folder) if not path.with_suffix(".png").exists()]


def main(argv: list[str] | None = None) -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the generated parts of README and docs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is out of date")
    if parser.parse_args(argv).check:
        late = outdated()
        print(
            "\n".join(f"{path.relative_to(ROOT)} is out of date: run `make docs`" for path in late)
            or "all pages are up to date"
        )
        return 1 if late else 0
    for path in missing_figures(ROOT / "results"):
        try:
            print(draw(path))
        except UserError as error:  # a figure of images needs its experiment
            print(error)
    for path, text in generated().items():
        write_atomic(path, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
