"""docs/results.md, generated from every file under results/: one table of claims, then a section for each file.

python -m anytime.experiments.results_page results docs/results.md
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from anytime.core.results import HOLDS, Results, Row, Verdict, read
from anytime.core.storage import write_atomic
from anytime.experiments.registry import EXPERIMENTS

HEADER = """# Results

Generated from `results/` by `make docs`; every number has its file, and every file its command, hardware, versions and data.
*Ours* is what was measured, *holds?* what follows from it by a rule that was fixed beforehand; *undecided* where the numbers
cannot tell. The schedule says where epochs, data or samples are fewer than the paper's. To do it yourself:
[reproduce.md](reproduce.md).

CelebA here is 17,476 of its faces, cropped more loosely than the aligned set: compare its rows with each other, not with
numbers from elsewhere.

| claim | paper | ours | holds? | schedule | command |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What stands across an experiment's table, what in it, and what the table is."""

    across: str
    value: str
    digits: int
    caption: str


LEGACY_EXPERIMENT = "reconstruction"
"""An experiment that `ordering` has taken in. Its files name neither the paper's epochs nor a command of today."""
ERRORS = "Mean squared error per pixel value in [0, 1], on held-out pictures, by share of the codes."
TABLES = {
    "theorem": TableSpec("code", "gain", 5, "I(z_i; x | z_<i) in bits, by code i; of all best codes the least ordered one."),
    "layout": TableSpec(
        "region",
        "unexplained",
        5,
        "Error from a quarter of the codes over the mean training picture's, by part of the picture.",
    ),
    "ordering": TableSpec("fraction", "error", 5, ERRORS),
    LEGACY_EXPERIMENT: TableSpec(
        "fraction", "error", 5, f"{ERRORS} An earlier form of `ordering`: the command is that of its commit."
    ),
    "objective": TableSpec("fraction", "fid", 2, "FID by share of the codes, a number for each seed."),
    "fid": TableSpec("fraction", "fid", 2, "FID by share of the codes, a number for each seed."),
    "speed": TableSpec(
        "fraction", "seconds", 1, "Seconds for all pictures by share of the codes, scaled from the batches measured."
    ),
    "samples": TableSpec("fraction", "distance", 5, "Mean squared distance of shortened samples to their full length."),
    "audio": TableSpec(
        "fraction", "log_mel", 3, "Log-mel distance of held-out reconstructions, in nats, by share of the codes."
    ),
    "vae": TableSpec("fraction", "error", 5, f"{ERRORS} From the mean code."),
    "priors": TableSpec("fraction", "fid", 2, "FID by share of the codes, a number for each seed."),
    "truncation": TableSpec("fraction", "fid", 2, "FID by share of the codes and law of truncation, a number for each seed."),
    "regularization": TableSpec(
        "images", "fid", 2, "FID at full length by number of training pictures, a number for each seed."
    ),
    "tailored": TableSpec("fraction", "fid", 2, "FID by share of the codes, a number for each seed."),
    "pca-prior": TableSpec("part", "bits", 3, "Bits per dimension of dequantised pictures, held out and trained on."),
    "priority-code": TableSpec("measure", "value", 4, "Distances between samples, root mean square per pixel value."),
}


def page(folder: Path, target: Path) -> str:
    """The whole page, for a file at `target`."""
    files = sorted(folder.glob("*/*.json"), key=_paper_order)
    found = [(path, read(path)) for path in files]
    lines = [_claim_line(results, verdict) for _, results in found for verdict in results.verdicts]
    sections = [_section(results, path, Path(os.path.relpath(path, target.parent))) for path, results in found]
    return HEADER + "\n".join([*lines, "", *sections])


def _paper_order(path: Path) -> tuple[int, str]:
    """In the order of the paper; what is no experiment of this version comes last."""
    names = list(EXPERIMENTS)
    name = path.parent.name
    return (names.index(name) if name in names else len(names)), str(path)


def _claim_line(results: Results, verdict: Verdict) -> str:
    figure = EXPERIMENTS["ordering" if results.experiment == LEGACY_EXPERIMENT else results.experiment].figure
    paper = f"{figure}: {verdict.paper}" if verdict.paper else figure
    claim = f"**{results.experiment}, {results.dataset}**: {verdict.claim}"
    schedule, command = (
        _legacy_schedule(results) if results.experiment == LEGACY_EXPERIMENT else (results.schedule, f"`{results.command}`")
    )
    return f"| {' | '.join(map(_cell, (claim, paper, verdict.evidence, HOLDS[verdict.holds], schedule, command)))} |"


def _legacy_schedule(results: Results) -> tuple[str, str]:
    """Schedule and command of a file of the earlier form, as one of today would state them."""
    epochs = re.findall(r"\d+ \+ \d+ epochs", results.schedule)[0]
    scale = "" if epochs == "200 + 200 epochs" else " --scale short"
    data = results.environment["data"].partition(";")[0]
    command = f"anytime reproduce ordering --dataset {results.dataset}{scale} --data DIR"
    return f"{epochs} (the paper's: 200 + 200); {data}", f"now `{command}`"


def _section(results: Results, path: Path, link: Path) -> str:
    environment, table = results.environment, TABLES[results.experiment]
    figure = f"![{results.dataset}]({link.with_suffix('.png')})\n" if path.with_suffix(".png").exists() else ""
    verdicts = [f"| {_cell(v.claim)} | {HOLDS[v.holds]} | {_cell(v.evidence)} |" for v in results.verdicts]
    held_out = [str(environment[key]) for key in ("data", "held_out") if key in environment]
    training = [_training_line(name, info) for name, info in environment.get("training", {}).items()]
    return "\n".join([
        f"## {results.experiment}: {results.dataset}\n",
        f"{table.caption}\n",
        _table(results.rows, table),
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


def _training_line(name: str, info: dict[str, str]) -> str:
    where = f"{info['hardware']}, {info['precision']}, {info['date']}, commit {info['commit']}"
    return f"- {name}: `{info['command']}` ({where})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(rows: list[Row], table: TableSpec) -> str:
    """Series down, what they are measured at across, seeds side by side; beside errors how much of the codebook is in use."""
    value = table.value
    if value == "fid" and not any("fid" in row for row in rows):
        value = "frechet_random"  # a smoke run's
    rows = [row for row in rows if table.across in row and value in row]
    places = list(dict.fromkeys(row[table.across] for row in rows))
    heads = [place if isinstance(place, str) else f"{place:g}" for place in places]
    use = any("codes_used" in row for row in rows)
    heads += ["entries used", "perplexity"] if use else []
    lines = [f"| series | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in dict.fromkeys(row["series"] for row in rows):
        own = [row for row in rows if row["series"] == name]
        at = ([row[value] for row in own if row[table.across] == place] for place in places)
        cells = [" / ".join(f"{number:.{table.digits}f}" for number in numbers) or "–" for numbers in at]
        if use:
            first = own[0]
            cells += [str(first["codes_used"]), f"{first['perplexity']:.0f}"] if "codes_used" in first else ["–", "–"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    write_atomic(target, page(source, target).encode())
