"""docs/results.md, generated from every file under results/: claim, numbers, verdict, schedule, command.

python -m anytime.experiments.page results docs/results.md
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from anytime.experiments.results import Results, Row, read
from anytime.storage import write_whole

HEAD = """# Results

Generated from `results/` by `python -m anytime.experiments.page results docs/results.md`; every number has its file.
Errors are mean squared errors per pixel value in [0, 1], on held-out pictures.

CelebA here is 17,476 of its faces, cropped more loosely than the aligned set: compare its rows with each other, not with
numbers from elsewhere. MNIST is at the paper's full schedule; CIFAR-10 and CelebA are at `--scale short` (40 + 60 of the
paper's 200 + 200 epochs).
"""
TABLES = {"theorem": ("code", "gain"), "layout": ("region", "unexplained")}
"""What stands across a table and what in it, by experiment; elsewhere the error by the fraction of the codes."""
CAPTIONS = {
    "theorem": "I(z_i; x | z_<i) in bits, by code i; of all best codes the least ordered one.",
    "layout": "Error from a quarter of the codes over the mean training picture's, by part of the picture.",
}
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}


def page(folder: Path, target: Path) -> str:
    """The whole page, for a file at `target`."""
    files = sorted(folder.glob("*/*.json"))
    sections = [_section(read(path), path, Path(os.path.relpath(path, target.parent))) for path in files]
    return "\n".join([HEAD, *sections])


def _section(results: Results, path: Path, link: Path) -> str:
    environment = results.environment
    figure = f"![{results.dataset}]({link.with_suffix('.png')})\n" if path.with_suffix(".png").exists() else ""
    verdicts = [f"| {_cell(v.claim)} | {HOLDS[v.holds]} | {_cell(v.evidence)} |" for v in results.verdicts]
    held_out = [str(environment[key]) for key in ("data", "held_out") if key in environment]
    training = [f"- {name}: `{command}`" for name, command in environment.get("training", {}).items()]
    return "\n".join([
        f"## {results.experiment}: {results.dataset}\n",
        *([CAPTIONS[results.experiment] + "\n"] if results.experiment in CAPTIONS else []),
        _table(results.rows, *TABLES.get(results.experiment, ("fraction", "error"))),
        *(["| claim | verdict | evidence |", "|---|---|---|", *verdicts, ""] if verdicts else []),
        figure,
        f"- data: {'; '.join(held_out) or results.dataset}",
        f"- schedule: {results.schedule}",
        f"- hardware: {environment['hardware']}, torch {environment['torch']}, {environment['date']}, "
        f"commit {environment['commit']}",
        f"- command: `{results.command}`",
        *training,
        f"- numbers: [{link}]({link})\n",
    ])  # fmt: skip


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(rows: list[Row], across: str, value: str) -> str:
    """Series down, what they are measured at across; beside errors how much of the codebook is in use."""
    rows = [row for row in rows if across in row and value in row]
    places = list(dict.fromkeys(row[across] for row in rows))
    heads = [place if isinstance(place, str) else f"{place:g}" for place in places]
    use = any("codes_used" in row for row in rows)
    heads += ["entries used", "perplexity"] if use else []
    lines = [f"| series | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in dict.fromkeys(row["series"] for row in rows):
        own = {row[across]: row for row in rows if row["series"] == name}
        cells = [f"{own[place][value]:.5f}" if place in own else "–" for place in places]
        if use:
            first = next(iter(own.values()))
            cells += [str(first["codes_used"]), f"{first['perplexity']:.0f}"] if "codes_used" in first else ["–", "–"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    write_whole(target, page(source, target).encode())
