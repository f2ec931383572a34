"""Reconstruction error by code length: ordered against unordered training, beside PCA (the numbers behind Fig. 3b).

python -m anytime.experiments.reconstruction cifar10 --runs ordered=runs/a unordered=runs/b --data DIR --out results
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from anytime import data
from anytime.autoencoders import pca
from anytime.autoencoders.quantizer import codebook_use
from anytime.data import Dataset
from anytime.evaluation.reconstruction import error_by_codes, pca_error_by_codes
from anytime.experiments.results import Results, Row, Verdict, series
from anytime.model import AnytimeModel, load, pick_device
from anytime.sampling.budget import code_count
from anytime.training.folder import environment, read_config
from anytime.training.recipes import RunConfig
from anytime.training.samples import encoded

FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)


def compute(dataset: Dataset, runs: Mapping[str, Path], device: torch.device, command: str = "") -> Results:
    """Held-out error of every run at every fraction of the codes, and PCA's with as many real numbers."""
    x = dataset.held_out.to(device)
    rows: list[Row] = []
    for name, folder in runs.items():
        rows += _rows(name, load(folder, device), x, read_config(folder).seed)
    length = load(next(iter(runs.values())), device).length
    counts = [code_count(length, fraction=f) for f in FRACTIONS]
    errors = pca_error_by_codes(pca.fit(dataset.train.to(device), length), x, counts)
    rows += [
        {"series": "pca", "fraction": f, "codes": k, "error": e} for f, k, e in zip(FRACTIONS, counts, errors, strict=True)
    ]
    part = "test" if dataset.test is not None else "validation"
    facts = {**environment(device), "data": dataset.source, "held_out": f"{len(x):,} {part} examples"}
    schedule = "; ".join(f"{name}: {_schedule(read_config(folder))}" for name, folder in runs.items())
    verdicts = [] if dataset.synthetic or "ordered" not in runs or "unordered" not in runs else decide(rows)
    return Results("reconstruction", dataset.name, command, facts, schedule, rows, verdicts)


def _rows(name: str, model: AnytimeModel, x: torch.Tensor, seed: int) -> list[Row]:
    counts = [code_count(model.length, fraction=f) for f in FRACTIONS]
    codes = encoded(model.autoencoder, x).long()
    use = codebook_use(torch.bincount(codes.flatten(), minlength=model.codebook_size))
    shared = {"series": name, "seed": seed, "codes_used": use.used, "perplexity": use.perplexity, "model": model.hash}
    errors = error_by_codes(model, x, counts)
    return [{**shared, "fraction": f, "codes": k, "error": e} for f, k, e in zip(FRACTIONS, counts, errors, strict=True)]


def _schedule(config: RunConfig) -> str:
    stages = f"{config.pretrain.epochs} + {config.ordered.epochs} epochs, {type(config.ordered.truncation).__name__.lower()}"
    return f"{stages}, {config.ordered.reduction} reduction, batch {config.ordered.batch}, {config.precision}"


def decide(rows: list[Row]) -> list[Verdict]:
    """The claims that the curves can bear out or refute."""
    ordered, unordered, principal = (series(rows, name, "error") for name in ("ordered", "unordered", "pca"))
    ratio = ordered[0.2] / unordered[0.2]
    above = [f for f in FRACTIONS if ordered[f] >= principal[f]]
    worse = [f for f in FRACTIONS[:-1] if ordered[f] >= unordered[f]]
    return [
        Verdict("ordered error at 0.2 is at most 0.3 of the unordered one", ratio <= 0.3, f"ratio {ratio:.3f}"),
        Verdict("ordered below PCA at every fraction", not above, f"not below at {above}" if above else "below at all five"),
        Verdict("ordered below unordered at every length below full", not worse, f"not below at {worse}" if worse else "below"),
    ]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    name: str
    runs: tuple[str, ...]
    """SERIES=RUN for each trained run; `ordered` and `unordered` are compared."""
    data: Path | None = None
    """A local copy of the data set."""
    out: Path = Path("results")
    device: str | None = None


def main() -> None:
    import tyro

    arguments = tyro.cli(Arguments)
    device = pick_device(arguments.device)
    dataset = data.load(arguments.name, data=arguments.data)
    runs = {name: Path(folder) for name, _, folder in (run.partition("=") for run in arguments.runs)}
    results = compute(dataset, runs, device, shlex.join(["python", "-m", "anytime.experiments.reconstruction", *sys.argv[1:]]))
    path = results.write(arguments.out)
    for row in results.rows:
        print(f"{row['series']:<12} {row['fraction']:.1f} {row['codes']:>4} codes  {row['error']:.5f}")
    for verdict in results.verdicts:
        print(f"{verdict.holds}  {verdict.claim}: {verdict.evidence}")
    print(path)


if __name__ == "__main__":
    main()
