"""docs/choices.md, generated from results/: what to choose and why. A question without results is left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from anytime.core.results import Results, curve, read
from anytime.experiments.statistics import ONE_SEED_MARGIN, Values, is_below, mean_over, values
from pages.reruns import reasons

HEADER = f"""# What to choose

Generated from `results/` by `make docs`: every line follows from the numbers of its file and changes with them. A difference
within the spread over seeds, or within {ONE_SEED_MARGIN:.0%} of a single seed, counts as none. Questions that no result answers
yet are left out. *To be run again* marks answers that a newer recipe or measurement may change. For the reasons, the paper's
claims and whether they hold, see [results.md](results.md).
"""
NEAR_BEST = 0.02
"""Relative distance from the best FID that counts as almost no loss."""
FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """A question, the answer that the numbers give, and the numbers."""

    question: str
    answer: str
    why: str


def page(folder: Path, target: Path) -> str:
    """Return the whole page for a file at `target`: one section per question."""
    sections: dict[str, list[str]] = {}
    for experiment, choose in CHOICES.items():
        for path in sorted((folder / experiment).glob("*.json")):
            results = read(path)
            if results.environment.get("scale") == "smoke":
                continue
            choice, link = choose(results), Path(os.path.relpath(path, target.parent))
            mark = "; to be run again" if reasons(results) else ""
            line = f"- **{choice.answer}**: {choice.why} ([{results.experiment}, {results.dataset}]({link}){mark})\n"
            sections.setdefault(choice.question, []).append(line)
    return HEADER + "".join(f"\n## {question}\n\n{''.join(lines)}" for question, lines in sections.items())


def ordering_choice(results: Results) -> Choice:
    """Ordered or unordered codes, by reconstruction error (Fig. 3)."""
    ordered, unordered = (curve(results.rows, series, "fraction", "error") for series in ("ordered", "unordered"))
    short, full = (ordered[f] / unordered[f] for f in (0.2, 1.0))
    why = f"from a fifth of the codes the error is {short:.2f} of the unordered model's, from all codes {full:.2f}"
    return Choice("Order the codes?", "yes, if you ever stop early" if short < 1 else "no", why)


def layout_choice(results: Results) -> Choice:
    """One code per channel or one per position (Fig. 2)."""
    at = {row["series"]: row["unexplained"] for row in results.rows if row.get("region") == "bottom half"}
    best = min(at, key=lambda name: at[name])
    shares = " and ".join(f"{share:.2f} {name}-wise" for name, share in at.items())
    why = f"a quarter of the codes leaves this fraction of the bottom half unexplained: {shares}"
    return Choice("One code per channel or per position?", "per channel" if best == "channel" else "per position", why)


def length_choice(results: Results) -> Choice:
    """The fewest codes that cost almost nothing (Fig. 4a)."""
    ordered = curve(results.rows, "ordered", "fraction", "fid")
    least = min(ordered.values())
    needed = min(fraction for fraction, value in ordered.items() if value <= (1 + NEAR_BEST) * least)
    why = f"FID {'; '.join(f'{f:g}: {value:.1f}' for f, value in ordered.items())}"
    return Choice("How many of the codes?", f"{needed:g} of them: at most {NEAR_BEST:.0%} above the best", why)


def prior_choice(results: Results) -> Choice:
    """Which prior network (Appendix C.2)."""
    best, why = _best(results)
    bits = {series: mean(values(results.rows, series, "bits_per_code")) for series in _series(results)}
    weights = {series: values(results.rows, series, "weights")[0] / 1e6 for series in bits}
    sizes = "; ".join(f"{series}: {bits[series]:.2f} bits per code, {weights[series]:.1f} million weights" for series in bits)
    return Choice("Which prior?", " or ".join(best), f"{why}; {sizes}")


def truncation_choice(results: Results) -> Choice:
    """Which truncation distribution (Appendix C.3)."""
    best, why = _best(results)
    return Choice("Which truncation distribution?", " or ".join(best), why)


def size_choice(results: Results) -> Choice:
    """Ordered or unordered codes at full length, by number of training images (Appendix C.4)."""
    rows = results.rows
    sizes = sorted({row["images"] for row in rows}, reverse=True)
    both = {f"{n:,}": (values(rows, "ordered", "fid", images=n), values(rows, "unordered", "fid", images=n)) for n in sizes}
    lower, higher = _lower_and_higher(both)
    parts = {"ordered": lower, "unordered": higher, "either": [size for size in both if size not in (*lower, *higher)]}
    answers = {variant: f"{variant} with {join_and(where)} images" for variant, where in parts.items() if where}
    answer = next(iter(answers)) if len(answers) == 1 else ", ".join(answers.values())
    why = "; ".join(f"{n} training images: FID {mean(a):.1f} ordered, {mean(b):.1f} unordered" for n, (a, b) in both.items())
    return Choice("Ordered codes if you always sample all of them?", answer, why)


def tailored_choice(results: Results) -> Choice:
    """One anytime model or one model per length (Appendix C.5)."""
    rows = results.rows
    codes = {row["fraction"]: row["codes"] for row in rows if row["series"] == "tailored"}
    both = {
        str(codes[f]): (values(rows, "anytime", "fid", fraction=f), values(rows, "tailored", "fid", fraction=f))
        for f in FRACTIONS
    }
    _, higher = _lower_and_higher(both)
    answer = "one anytime model" if not higher else f"a tailored model for {join_and(higher)} codes, if that is all you need"
    why = "; ".join(f"{count} codes: FID {mean(a):.1f} anytime, {mean(b):.1f} tailored" for count, (a, b) in both.items())
    return Choice("One model, or one per length?", answer, why)


def vae_choice(results: Results) -> Choice:
    """Whether to order continuous latents (Appendix C.1)."""
    ordered, standard = (curve(results.rows, series, "fraction", "error") for series in ("ordered", "standard"))
    short, full = (ordered[f] / standard[f] for f in (0.2, 1.0))
    why = f"from a fifth of the latents the error is {short:.2f} of the standard VAE's, from all latents {full:.2f}"
    return Choice("Order a VAE's latents in the same way?", "yes, if you ever stop early" if short < 1 else "no", why)


def pca_choice(results: Results) -> Choice:
    """Whether to model principal components instead of pixels (Appendix D)."""
    pixels, pca = (values(results.rows, space, "bits", part="held out") for space in ("pixels", "pca"))
    answer = {True: "yes", False: "no", None: "either"}[is_below(pca, pixels)]
    why = f"{mean(pca):.2f} bits per dimension, against {mean(pixels):.2f} for the pixels with the same network"
    return Choice("An autoregressive model of principal components?", answer, why)


CHOICES: dict[str, Callable[[Results], Choice]] = {
    "ordering": ordering_choice,
    "layout": layout_choice,
    "fid": length_choice,
    "truncation": truncation_choice,
    "priors": prior_choice,
    "regularization": size_choice,
    "tailored": tailored_choice,
    "vae": vae_choice,
    "pca-prior": pca_choice,
}


def join_and(names: Sequence[str]) -> str:
    """Join names as a sentence does.

    >>> join_and(["14"]), join_and(["14", "28", "42"])
    ('14', '14, 28 and 42')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _series(results: Results) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in results.rows if "fid" in row))


def _best(results: Results) -> tuple[list[str], str]:
    """Return the series that no other is below on average over the fractions, and the averages."""
    by_seed = {one: mean_over(results.rows, one, "fid", fraction=FRACTIONS) for one in _series(results)}
    best = [one for one in by_seed if not any(is_below(by_seed[other], by_seed[one]) for other in by_seed if other != one)]
    averages = "; ".join(f"{one}: FID {mean(numbers):.1f}" for one, numbers in by_seed.items())
    return best, f"mean over the fractions {averages}"


def _lower_and_higher(pairs: Mapping[str, tuple[Values, Values]]) -> tuple[list[str], list[str]]:
    """Return where the first is below the second, and where it is above."""
    found = {where: is_below(a, b) for where, (a, b) in pairs.items()}
    return [where for where, below in found.items() if below], [where for where, below in found.items() if below is False]
