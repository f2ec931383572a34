"""Reconstruction error by code length: ordered against unordered training, beside PCA (the numbers behind Fig. 3b).

python -m anytime.experiments.reconstruction --name cifar10 --runs ordered=runs/a unordered=runs/b --data DIR
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from anytime import data
from anytime.autoencoders import pca
from anytime.autoencoders.quantizer import codebook_use
from anytime.data import Dataset
from anytime.evaluation.reconstruction import error_by_codes, pca_error_by_codes
from anytime.experiments.results import Results, Row, Verdict, read, recorded_command, series
from anytime.experiments.runs import decided, facts, named_runs, schedule
from anytime.model import AnytimeModel, load, pick_device
from anytime.sampling.budget import code_count
from anytime.training.folder import read_config
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
    errors = pca_error_by_codes(pca.fit(dataset.pictures.to(device), length), x, counts)
    rows += [
        {"series": "pca", "fraction": f, "codes": k, "error": e} for f, k, e in zip(FRACTIONS, counts, errors, strict=True)
    ]
    verdicts = decided(decide(rows), dataset, runs) if {"ordered", "unordered"} <= runs.keys() else []
    about = facts(dataset, runs, device)
    return Results("reconstruction", dataset.name, command, about, schedule(runs), rows, verdicts)


def _rows(name: str, model: AnytimeModel, x: torch.Tensor, seed: int) -> list[Row]:
    counts = [code_count(model.length, fraction=f) for f in FRACTIONS]
    codes = encoded(model.autoencoder, x).long()
    use = codebook_use(torch.bincount(codes.flatten(), minlength=model.codebook_size))
    shared = {"series": name, "seed": seed, "codes_used": use.used, "perplexity": use.perplexity, "model": model.hash}
    errors = error_by_codes(model, x, counts)
    return [{**shared, "fraction": f, "codes": k, "error": e} for f, k, e in zip(FRACTIONS, counts, errors, strict=True)]


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


def draw(path: Path) -> Path:
    """The figure beside a results file, from its numbers alone."""
    import matplotlib.figure

    results = read(path)
    figure = matplotlib.figure.Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(row["series"] for row in results.rows):
        curve = series(results.rows, name, "error")
        axes.plot(list(curve), list(curve.values()), marker="o", label=name, linestyle=":" if name == "pca" else "-")
    axes.set(xlabel="fraction of the codes", ylabel="mean squared error", title=results.dataset, ylim=(0, None))
    axes.legend()
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=120)
    return target


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
    results = compute(dataset, named_runs(arguments.runs), device, recorded_command("anytime.experiments.reconstruction"))
    path = results.write(arguments.out)
    draw(path)
    for row in results.rows:
        print(f"{row['series']:<12} {row['fraction']:.1f} {row['codes']:>4} codes  {row['error']:.5f}")
    for verdict in results.verdicts:
        print(f"{verdict.holds}  {verdict.claim}: {verdict.evidence}")
    print(path)


if __name__ == "__main__":
    main()
