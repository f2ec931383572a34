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
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}


def page(folder: Path, target: Path) -> str:
    """The whole page, for a file at `target`."""
    files = sorted(folder.glob("*/*.json"))
    sections = [_section(read(path), path, Path(os.path.relpath(path, target.parent))) for path in files]
    return "\n".join([HEAD, *sections])


def _section(results: Results, path: Path, link: Path) -> str:
    environment = results.environment
    figure = f"![{results.dataset}]({link.with_suffix('.png')})\n" if path.with_suffix(".png").exists() else ""
    verdicts = [f"| {v.claim} | {HOLDS[v.holds]} | {v.evidence} |" for v in results.verdicts]
    training = [f"- {name}: `{command}`" for name, command in environment.get("training", {}).items()]
    return "\n".join([
        f"## {results.experiment}: {results.dataset}\n",
        _table(results.rows),
        *(["| claim | verdict | evidence |", "|---|---|---|", *verdicts, ""] if verdicts else []),
        figure,
        f"- data: {environment.get('data', results.dataset)}; {environment.get('held_out', '')}",
        f"- schedule: {results.schedule}",
        f"- hardware: {environment['hardware']}, torch {environment['torch']}, {environment['date']}, "
        f"commit {environment['commit']}",
        f"- command: `{results.command}`",
        *training,
        f"- numbers: [{link}]({link})\n",
    ])  # fmt: skip


def _table(rows: list[Row]) -> str:
    """Series down, fractions across; the error, and beside it how much of the codebook is in use."""
    fractions = list(dict.fromkeys(row["fraction"] for row in rows))
    lines = [
        f"| series | {' | '.join(f'{f:g}' for f in fractions)} | entries used | perplexity |",
        "|---" * (len(fractions) + 3) + "|",
    ]
    for name in dict.fromkeys(row["series"] for row in rows):
        own = [row for row in rows if row["series"] == name]
        errors = " | ".join(f"{row['error']:.5f}" for row in own)
        use = f"{own[0]['codes_used']} | {own[0]['perplexity']:.0f}" if "codes_used" in own[0] else "– | –"
        lines.append(f"| {name} | {errors} | {use} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    write_whole(target, page(source, target).encode())
