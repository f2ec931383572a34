"""docs/results.md, generated from every file under results/: one table of claims, then a section for each file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from anytime.core.results import HOLDS, Results, Row, Verdict, read
from anytime.experiments.registry import EXPERIMENTS
from pages.markdown import table
from pages.reruns import reasons

HEADER = """# Results

Generated from `results/` by `make docs`. Every number has its file; every file has its command, hardware, versions and data.
*Ours* is the measurement. *Holds?* follows from it by a rule that was fixed before the measurement; it is *undecided* where the
numbers cannot tell. *Seeds* is the number of trainings of each model; evidence has means over seeds and their spread.
*Schedule* says where epochs, data or samples are fewer than the paper's. To repeat an experiment, see
[reproduce.md](reproduce.md). The same verdicts beside the paper's figures are in [paper.md](paper.md).

Some rules are younger than some numbers. The margin of one seed was 3 % until the spread over seeds was known; now it is 10 %.
These rules were added later:

- `fid`: the original VQ-VAE at full length, quality that rises with every fifth of the codes, and with one seed the margin of a
  loss;
- `ordering`: *similar* errors of all codes;
- `audio`: distances that fall with the codes, and samples of all codes;
- `speed`: decoding by code length;
- `pca-prior`: the bits of principal components against the paper's;
- `regularization`: overfitting as a condition.

CelebA here is 17,476 of its faces, cropped more loosely than the aligned dataset. Compare its rows with each other, not with
numbers from elsewhere.

Keys and words in older files were renamed by scripts since they were measured. The numbers are those that were measured: a test
compares their digests.
"""
RERUN = "to be run again"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """An experiment's table: the key of its columns, the key of its values, decimals and caption."""

    across: str
    value: str
    digits: int
    caption: str


ERRORS = "Mean squared error per pixel value in [0, 1] on held-out images, by fraction of the codes."
FID = "FID by fraction of the codes, one number per seed."
TABLES: dict[str, TableSpec | tuple[TableSpec, ...]] = {
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
    "regularization": (
        TableSpec("images", "fid", 2, "FID at full length by number of training images, one number per seed."),
        TableSpec("images", "training_bits", 2, "Bits per code of training images, by number of training images."),
        TableSpec("images", "held_out_bits", 2, "Bits per code of held-out images, by number of training images."),
    ),
    "tailored": TableSpec("fraction", "fid", 2, FID),
    "pca-prior": TableSpec("part", "bits", 3, "Bits per dimension of dequantised images, held-out and training."),
    "priority-code": TableSpec("measure", "value", 4, "Distances between samples, root mean square per pixel value."),
}


def page(folder: Path, target: Path) -> str:
    """Return the whole page for a file at `target`, experiments in the order of the paper."""
    files = [path for name in EXPERIMENTS for path in sorted((folder / name).glob("*.json"))]
    found = [(path, read(path)) for path in files]
    claims = [_claim(results, verdict) for _, results in found for verdict in results.verdicts]
    again = [[f"{r.experiment}, {r.dataset}", "; ".join(why), f"`{r.command}`"] for _, r in found if (why := reasons(r))]
    again += [[name, "no results yet", f"`anytime reproduce {name}`"] for name in EXPERIMENTS if not (folder / name).is_dir()]
    sections = [_section(results, path, Path(os.path.relpath(path, target.parent))) for path, results in found]
    marked = f"## To be run again\n\nVerdicts of these files are marked.\n\n{table(['results', 'why', 'command'], again)}\n"
    columns = ["claim", "paper", "ours", "holds?", "seeds", "schedule", "command"]
    return "\n".join([HEADER, *([marked] if again else []), "## Claims\n", table(columns, claims), "", *sections])


def _claim(results: Results, verdict: Verdict) -> list[str]:
    figure = EXPERIMENTS[results.experiment].figure
    paper = f"{figure}: {verdict.paper}" if verdict.paper else figure
    claim = f"**{results.experiment}, {results.dataset}**: {verdict.claim}"
    holds = HOLDS[verdict.holds] + (f" ({RERUN})" if reasons(results) else "")
    seeds = len({row["seed"] for row in results.rows if "seed" in row})
    return [claim, paper, verdict.evidence, holds, str(seeds or "–"), results.schedule, f"`{results.command}`"]


def _section(results: Results, path: Path, link: Path) -> str:
    environment, specs = results.environment, TABLES[results.experiment]
    specs = specs if isinstance(specs, tuple) else (specs,)
    figure = f"![{results.dataset}]({link.with_suffix('.png')})\n" if path.with_suffix(".png").exists() else ""
    verdicts = [[verdict.claim, HOLDS[verdict.holds], verdict.evidence] for verdict in results.verdicts]
    data = [str(environment[key]) for key in ("data", "held_out") if key in environment]
    training = [_training_line(name, info) for name, info in environment.get("training", {}).items()]
    return "\n".join([
        f"## {results.experiment}: {results.dataset}\n",
        *([f"**To be run again: {'; '.join(why)}.**\n"] if (why := reasons(results)) else []),
        *(f"{spec.caption}\n\n{numbers(results.rows, spec)}\n" for spec in specs),
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
        line = [name, *(by_seeds(numbers, spec.digits) for numbers in by_column)]
        if codebook:
            first = own[0]
            line += [str(first["codes_used"]), f"{first['perplexity']:.0f}"] if "codes_used" in first else ["–", "–"]
        lines.append(line)
    return table(header, lines)


def by_seeds(numbers: list[float], digits: int) -> str:
    """Return a number, or with several seeds their mean and each of them.

    >>> by_seeds([91.4], 1), by_seeds([91.4, 92.6], 1), by_seeds([], 1)
    ('91.4', '92.0 (91.4 / 92.6)', '–')
    """
    each = " / ".join(f"{number:.{digits}f}" for number in numbers)
    return f"{mean(numbers):.{digits}f} ({each})" if len(numbers) > 1 else each or "–"
