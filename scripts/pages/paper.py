"""docs/paper.md, generated from results/: the paper's figures in words, ours beside them, claim by claim."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anytime.core.results import HOLDS, Results, Verdict, read
from pages.markdown import table
from pages.reruns import reasons

HEADER = """# The paper's figures and ours

Generated from `results/` by `make docs`. For every figure: what the paper shows, in words; our figure with the same axes; and
the paper's claims with our verdicts. The words are ours, from the captions and the text. Numbers, schedules and commands are in
[results.md](results.md), differences of the set-up in [deviations.md](deviations.md).

*To be run again* marks results that a newer recipe or measurement replaces; the reason is in results.md. CelebA is 17,476 of
its faces here. Fig. 1 of the paper draws the method: see [method.md](method.md). That orthogonal networks recover PCA
(Section 3.1) is one of its [laws](method.md#7-ten-laws), which the tests check.
"""


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """A figure of the paper and the experiment that repeats it."""

    title: str
    experiment: str
    shows: str  # the paper's figure, in words
    ours: str  # how our figure differs, if it does
    claims: tuple[str, ...]  # as verdicts quote them


FIGURES = (
    PaperFigure(
        "Theorem 1 (Section 3.1.1)",
        "theorem",
        "No figure. The theorem says that later codes of an optimal encoder add less information about x.",
        "All encoders of a small discrete x are enumerated. Information that code i adds, by code i.",
        (
            "stated for i ≥ 3",
            "proved for i ≥ 2",
            "ordering comes from the objective of Eq. 4",
            "z_i−1 ⊥ z_i given x and z_≤i−2 is assumed",
        ),
    ),
    PaperFigure(
        "Fig. 2: spatial-wise and channel-wise quantization",
        "layout",
        "Samples from a quarter of the code length, MNIST above CelebA. Spatial-wise on the left: only the top rows of each "
        "image. Channel-wise on the right: whole, coarse images.",
        "The same samples, and reconstructions beside the data. On the left the error by row of pixels, which decides.",
        (
            "spatial-wise, a quarter of the code reconstructs only the top rows",
            "channel-wise, a quarter of the code gives whole images",
            "early spatial-wise codes cannot capture the global information",
        ),
    ),
    PaperFigure(
        "Fig. 3: ordered and unordered codes on CIFAR-10",
        "ordering",
        "(a) Δ(i), the drop in reconstruction error that code i brings, by i, for PCA, unordered and ordered codes: PCA and "
        "ordered decay, unordered is irregular. (b) Reconstruction error by truncated code length for the same three.",
        "The same axes. A code of PCA is one real coefficient.",
        (
            "ordered Δ(i) decays gradually, unordered is highly irregular",
            "superior reconstructions compared to PCA and unordered across all truncation lengths",
            "when sufficiently truncated, even PCA outperforms unordered VQ-VAE",
            "similar errors for sufficiently large code lengths, significantly better when aggressively truncated",
        ),
    ),
    PaperFigure(
        "Fig. 4a: FID by code length",
        "fid",
        "FID by fraction of the code length, 0.2 to 1.0, for ordered and unordered codes on CIFAR-10 and on CelebA. The "
        "original VQ-VAE is a reference at full length.",
        "The same axes. The original VQ-VAE is measured at every fraction; only its full length is compared.",
        (
            "a better FID than unordered at all fractional code lengths",
            "almost no loss in sample quality using only 60% to 80% of all latent dimensions",
            "a better FID up to 100% of the codes, on CIFAR-10 even when sampling full codes",
            "a consistent increase in sample quality with the code length",
            "faster than the original VQ-VAE without compromising sample quality",
        ),
    ),
    PaperFigure(
        "Fig. 4b: inference speed",
        "speed",
        "Seconds for 50,000 (CIFAR-10) or 100,000 images (CelebA) in batches of 100, by fraction of the code length, on a "
        "TITAN Xp. The time rises linearly and stays below that of the original VQ-VAE.",
        "The left panel has the same axes, every model with the eager engine. The others add our fast engine, a pixel-space "
        "model and the decoder's share.",
        (
            "the time increases almost linearly with the code length",
            "24 s of 634 s on CelebA, over an order of magnitude less than sampling",
            "the code length has minimal effect on the run-time of decoding",
            "faster than the original VQ-VAE even at full code length",
            "an order of magnitude faster than PixelCNN++",
            "around 40% of the run-time saved at 60% of the codes on CelebA",
        ),
    ),
    PaperFigure(
        "Fig. 5 and Appendix G: samples by code length",
        "samples",
        "Grids of samples with 0.25, 0.5, 0.75 and 1.0 of the code length, from top to bottom, on MNIST, CIFAR-10 and CelebA. "
        "Global structure comes first, then details. The appendix adds larger grids, and unordered ones.",
        "The same grids, ordered on the left and unordered on the right.",
        ("global structure first, then gradually local details", "sample quality degrades gracefully (ordered)"),
    ),
    PaperFigure(
        "Appendix B: audio",
        "audio",
        "Waveforms of samples on VCTK with 0.0625, 0.25 and 1.0 of the code length, from left to right, unordered above "
        "ordered. Unordered waveforms are noise when truncated.",
        "The same panels on AudioMNIST instead of VCTK, with spectrograms, by the paper's recipe and by ours. Below them "
        "distances of reconstructions, errors by frequency band and classified samples.",
        (
            "the correct global structure using as few as 6.25% of the full code length",
            "low frequency features first, then higher frequency components",
            "gradually refines itself as more code dimensions are sampled",
            "samples from the unordered VQ-VAE contain considerably more noise when using truncated codes",
            "comparable sample quality to regular VQ-VAEs on several image and audio datasets",
        ),
    ),
    PaperFigure(
        "Appendix C.1: VAE",
        "vae",
        "As Fig. 3, for a standard and an ordered VAE on CIFAR-10: Δ(i) by i, and the error by code length.",
        "The same axes, for every variance of the decoder.",
        (
            "the standard VAE has irregular Δ(i), the ordered VAE much better ordering",
            "the ordered VAE has better reconstructions under different truncated code lengths",
        ),
    ),
    PaperFigure(
        "Appendix C.2: autoregressive models",
        "priors",
        "FID by fraction of the code length for a Transformer, an LSTM and a PixelCNN on ordered codes of CIFAR-10.",
        "The same axes.",
        (
            "models of 1D sequences are uniformly better at 0.4, 0.6, 0.8 and 1.0",
            "PixelCNN is inferior in all cases except at 0.2",
        ),
    ),
    PaperFigure(
        "Appendix C.3: truncation distributions",
        "truncation",
        "The probability of every code length under the uniform distribution, Geo(0.03) and Geo(0.1), and beside it FID by "
        "fraction of the code length on CIFAR-10.",
        "The same axes.",
        (
            "with all the different distributions quality and budget can be traded off",
            "Geo(0.03) is marginally worse than uniform",
            "Geo(0.1) becomes much worse with large code length (0.6, 0.8, 1.0)",
        ),
    ),
    PaperFigure(
        "Appendix C.4: numbers of training samples",
        "regularization",
        "FID from all codes by number of training samples, ordered and unordered, on CIFAR-10. The lead of the ordered model "
        "grows as the samples become fewer.",
        "The left panel has the same axes. The right one shows bits per code of training and held-out images: where the prior "
        "overfits.",
        (
            "lower FID with full length codes under different numbers of training samples",
            "an increasingly larger improvement when the dataset becomes increasingly smaller",
            "higher training error, yet a better FID",
        ),
    ),
    PaperFigure(
        "Appendix C.5: tailored VQ-VAE",
        "tailored",
        "FID by computational budget, one anytime model against an unordered model made for each code length, on CIFAR-10.",
        "The same axes; the budget is the number of codes.",
        (
            "anytime sampling always has better FID than tailored models, except when the code is very short",
            "except when the code is very short",
        ),
    ),
    PaperFigure(
        "Appendix D: principal components",
        "pca-prior",
        "No figure. Bits per dimension of a Transformer on MNIST: 1.22 on principal components, 0.80 on pixels.",
        "Bits by epoch, and samples of both.",
        ("1.22 bits/dim in PCA space against 0.80 on pixels", "inferior sample quality in PCA space"),
    ),
    PaperFigure(
        "Appendix F: one first code",
        "priority-code",
        "Four grids of samples at full length that share their first code: they vary, and are alike in their global structure.",
        "The same grids, ordered on the left and unordered on the right.",
        (
            "samples sharing the first code share high-level global similarities",
            "the first code has the highest priority (ordered)",
        ),
    ),
    PaperFigure(
        "Eq. 6: sums or means",
        "objective",
        "No figure. The loss is printed as sums of squares; the authors' code averages each term.",
        "FID by fraction of the code length for both, the epoch selected by the total loss or by the reconstruction.",
        ("Eq. 6 is printed with sums",),
    ),
)


def page(folder: Path, target: Path) -> str:
    """Return the whole page for a file at `target`."""
    return "\n".join([HEADER, *(_section(figure, folder, target) for figure in FIGURES)])


def _section(figure: PaperFigure, folder: Path, target: Path) -> str:
    found = {path: read(path) for path in sorted((folder / figure.experiment).glob("*.json"))}
    lines = [f"## {figure.title}\n", f"**The paper**: {figure.shows}\n", f"**Ours** (`{figure.experiment}`): {figure.ours}\n"]
    for path, results in found.items():
        mark = " **To be run again.**" if reasons(results) else ""
        link = Path(os.path.relpath(path.with_suffix(".png"), target.parent))
        lines.append(f"![{results.experiment}, {results.dataset}]({link})\n\n{results.dataset}: {_setup(results)}.{mark}\n")
    lines += [] if found else [f"No results yet: `anytime reproduce {figure.experiment}`.\n"]
    rows = [row for claim in figure.claims for row in _claim_rows(claim, list(found.values()))]
    lines.append(table(["the paper says", "we test", "dataset", "holds?", "evidence"], rows) + "\n")
    return "\n".join(lines)


def _setup(results: Results) -> str:
    """Return the scale and the seeds in words."""
    seeds = sorted({row["seed"] for row in results.rows if "seed" in row})
    scale = results.environment.get("scale")
    words = [f"scale {scale}"] if scale else []
    words += [f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"] if seeds else []
    return ", ".join(words) or "computed exactly"


def _claim_rows(claim: str, found: Sequence[Results]) -> list[list[str]]:
    tests = [(results, verdict) for results in found for verdict in results.verdicts if verdict.paper == claim]
    if not tests:
        return [[claim, "–", "–", "no result yet", "–"]]
    return [[claim, verdict.claim, results.dataset, _holds(results, verdict), verdict.evidence] for results, verdict in tests]


def _holds(results: Results, verdict: Verdict) -> str:
    return HOLDS[verdict.holds] + (" (to be run again)" if reasons(results) else "")
