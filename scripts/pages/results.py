"""docs/results.md, generated from every file under results/: one table of claims, then a section for each file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from anytime.core.results import HOLDS, Results, Row, Verdict, read
from anytime.experiments.registry import EXPERIMENTS
from pages.markdown import table

HEADER = """# Results

Generated from `results/` by `make docs`. Every number has its file; every file has its command, hardware, versions and data.
*Ours* is the measurement. *Holds?* follows from it by a rule that was fixed before the measurement; it is *undecided* where the
numbers cannot tell. *Schedule* says where epochs, data or samples are fewer than the paper's. To repeat an experiment, see
[reproduce.md](reproduce.md).

Two rules are younger than some numbers. The margin of one seed was 3 % until the spread over seeds was known; now it is 10 %.
The comparison with the original VQ-VAE at full length was added later.

CelebA here is 17,476 of its faces, cropped more loosely than the aligned dataset. Compare its rows with each other, not with
numbers from elsewhere.

The rows of the original VQ-VAE (`fid`) are one seed of a model whose codebook was 88 % dead. Its recipe is mended; the rows are
not measured again yet.
"""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """An experiment's table: the key of its columns, the key of its values, decimals and caption."""

    across: str
    value: str
    digits: int
    caption: str


ERRORS = "Mean squared error per pixel value in [0, 1] on held-out images, by fraction of the codes."
FID = "FID by fraction of the codes, one number per seed."
TABLES = {
    "theorem": TableSpec("code", "gain", 5, "I(z_i; x | z_<i) in bits, by code i, of the least ordered among all best codes."),
    "layout": TableSpec(
        "region",
        "unexplained",
        5,
        "Error from a quarter of the codes, relative to the mean training image's error, by region of the image.",
    ),
    "ordering": TableSpec("fraction", "error", 5, ERRORS),
    "objective": TableSpec("fraction", "fid", 2, FID),
    "fid": TableSpec("fraction", "fid", 2, FID),
    "speed": TableSpec(
        "fraction", "seconds", 1, "Seconds for all images by fraction of the codes, scaled up from the measured batches."
    ),
    "samples": TableSpec("fraction", "distance", 5, "Mean squared distance of shortened samples to their full length."),
    "audio": TableSpec(
        "fraction", "log_mel", 3, "Log-mel distance of held-out reconstructions, in nats, by fraction of the codes."
    ),
    "vae": TableSpec("fraction", "error", 5, f"{ERRORS} Decoded from the mean code."),
    "priors": TableSpec("fraction", "fid", 2, FID),
    "truncation": TableSpec(
        "fraction", "fid", 2, "FID by fraction of the codes and truncation distribution, one number per seed."
    ),
    "regularization": TableSpec("images", "fid", 2, "FID at full length by number of training images, one number per seed."),
    "tailored": TableSpec("fraction", "fid", 2, FID),
    "pca-prior": TableSpec("part", "bits", 3, "Bits per dimension of dequantised images, held-out and training."),
    "priority-code": TableSpec("measure", "value", 4, "Distances between samples, root mean square per pixel value."),
}


def page(folder: Path, target: Path) -> str:
    """Return the whole page for a file at `target`, experiments in the order of the paper."""
    files = [path for name in EXPERIMENTS for path in sorted((folder / name).glob("*.json"))]
    found = [(path, read(path)) for path in files]
    claims = [_claim(results, verdict) for _, results in found for verdict in results.verdicts]
    sections = [_section(results, path, Path(os.path.relpath(path, target.parent))) for path, results in found]
    return "\n".join([HEADER, table(["claim", "paper", "ours", "holds?", "schedule", "command"], claims), "", *sections])


def _claim(results: Results, verdict: Verdict) -> list[str]:
    figure = EXPERIMENTS[results.experiment].figure
    paper = f"{figure}: {verdict.paper}" if verdict.paper else figure
    claim = f"**{results.experiment}, {results.dataset}**: {verdict.claim}"
    return [claim, paper, verdict.evidence, HOLDS[verdict.holds], results.schedule, f"`{results.command}`"]


def _section(results: Results, path: Path, link: Path) -> str:
    environment, spec = results.environment, TABLES[results.experiment]
    figure = f"![{results.dataset}]({link.with_suffix('.png')})\n" if path.with_suffix(".png").exists() else ""
    verdicts = [[verdict.claim, HOLDS[verdict.holds], verdict.evidence] for verdict in results.verdicts]
    data = [str(environment[key]) for key in ("data", "held_out") if key in environment]
    training = [_training_line(name, info) for name, info in environment.get("training", {}).items()]
    return "\n".join([
        f"## {results.experiment}: {results.dataset}\n",
        f"{spec.caption}\n",
        f"{numbers(results.rows, spec)}\n",
        *([f"{table(['claim', 'verdict', 'evidence'], verdicts)}\n"] if verdicts else []),
        figure,
        f"- data: {'; '.join(data) or results.dataset}",
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


def numbers(rows: list[Row], spec: TableSpec) -> str:
    """Return one line per series, seeds side by side; codebook use follows where it was measured."""
    value = spec.value
    if value == "fid" and not any("fid" in row for row in rows):
        value = "frechet_random"  # what smoke runs measure
    rows = [row for row in rows if spec.across in row and value in row]
    columns = list(dict.fromkeys(row[spec.across] for row in rows))
    header = ["series", *(column if isinstance(column, str) else f"{column:g}" for column in columns)]
    codebook = any("codes_used" in row for row in rows)
    header += ["entries used", "perplexity"] if codebook else []
    lines = []
    for name in dict.fromkeys(row["series"] for row in rows):
        own = [row for row in rows if row["series"] == name]
        by_column = ([row[value] for row in own if row[spec.across] == column] for column in columns)
        line = [name, *(" / ".join(f"{number:.{spec.digits}f}" for number in by_seed) or "–" for by_seed in by_column)]
        if codebook:
            first = own[0]
            line += [str(first["codes_used"]), f"{first['perplexity']:.0f}"] if "codes_used" in first else ["–", "–"]
        lines.append(line)
    return table(header, lines)
