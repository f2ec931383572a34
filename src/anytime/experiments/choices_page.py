"""docs/choices.md, generated from results/: what to choose, and why. A choice without results is left out.

python -m anytime.experiments.choices_page results docs/choices.md
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from anytime.core.results import Results, curve, read
from anytime.core.storage import write_atomic
from anytime.evaluation.image_summary import distance_name
from anytime.experiments import priors, truncation, vae
from anytime.experiments.fid_evaluator import FID_FRACTIONS
from anytime.experiments.reproduce import RENAMED_EXPERIMENTS
from anytime.experiments.results_page import LEGACY_EXPERIMENT
from anytime.experiments.statistics import Values, is_below, mean_over, values

HEADER = """# What to choose

Generated from `results/` by `make docs`: every line follows from the numbers of its file and changes with them. Differences
that may be chance (within the spread over seeds, or within 3 % of a single one) count as none. Questions that no result answers
yet are left out. What the paper claims, and whether it holds, is in [results.md](results.md).
"""
NEAR_BEST = 0.02  # above the best FID: "almost no loss"


@dataclass(frozen=True, slots=True)
class Recommendation:
    question: str
    answer: str
    why: str


def page(folder: Path, target: Path) -> str:
    """The whole page, for a file at `target`: a section for each question."""
    sections: dict[str, list[str]] = {}
    for experiment, choose in CHOICES.items():
        for path in sorted((folder / experiment).glob("*.json")):
            results = read(path)
            superseded = (
                experiment == LEGACY_EXPERIMENT and (folder / RENAMED_EXPERIMENTS[LEGACY_EXPERIMENT] / path.name).exists()
            )
            if superseded or results.environment.get("scale") == "smoke":
                continue
            choice, link = choose(results), Path(os.path.relpath(path, target.parent))
            line = f"- **{choice.answer}**: {choice.why} ([{results.experiment}, {results.dataset}]({link}))\n"
            sections.setdefault(choice.question, []).append(line)
    return HEADER + "".join(f"\n## {question}\n\n{''.join(lines)}" for question, lines in sections.items())


def ordering_choice(results: Results) -> Recommendation:
    """Ordered codes or not, by reconstruction error (Fig. 3)."""
    ordered, unordered = (curve(results.rows, variant, "fraction", "error") for variant in ("ordered", "unordered"))
    short, full = (ordered[f] / unordered[f] for f in (0.2, 1.0))
    why = f"from a fifth of the codes the error is {short:.2f} of the unordered one, from all of them {full:.2f}"
    return Recommendation("Order the codes?", "yes, if you ever stop early" if short < 1 else "no", why)


def layout_choice(results: Results) -> Recommendation:
    """Channels or places (Fig. 2)."""
    at = {row["series"]: row["unexplained"] for row in results.rows if row.get("region") == "bottom half"}
    best = min(at, key=lambda name: at[name])
    shares = " and ".join(f"{share:.2f} {name}-wise" for name, share in at.items())
    why = f"a quarter of the codes leaves unknown of the bottom half {shares}"
    return Recommendation(
        "A code for each channel or for each place?", "each channel" if best == "channel" else "each place", why
    )


def length_choice(results: Results) -> Recommendation:
    """As few codes as cost almost nothing (Fig. 4a)."""
    name = distance_name(results.rows)
    ordered = curve(results.rows, "ordered", "fraction", name)
    least = min(ordered.values())
    fraction_needed = min(fraction for fraction, value in ordered.items() if value <= (1 + NEAR_BEST) * least)
    why = f"FID {'; '.join(f'{f:g}: {value:.1f}' for f, value in ordered.items())}"
    return Recommendation("How many of the codes?", f"{fraction_needed:g} of them: at most {NEAR_BEST:.0%} above the best", why)


def prior_choice(results: Results) -> Recommendation:
    """Which network draws the codes (Appendix C.2)."""
    bits = {series: mean(values(results.rows, series, "bits_per_code")) for series in priors.SERIES}
    sizes = {series: values(results.rows, series, "weights")[0] for series in priors.SERIES}
    best, why = _best(results, tuple(priors.SERIES))
    known = "; ".join(f"{series}: {bits[series]:.2f} bits a code, {sizes[series] / 1e6:.1f} million weights" for series in bits)
    return Recommendation("Which prior?", _join_or(best), f"{why}; {known}")


def truncation_choice(results: Results) -> Recommendation:
    """Which law of truncation (Appendix C.3)."""
    best, why = _best(results, tuple(truncation.SERIES))
    return Recommendation("Which law of truncation?", _join_or(best), why)


def size_choice(results: Results) -> Recommendation:
    """Ordered codes or not where all of them are drawn, by number of training pictures (Appendix C.4)."""
    rows, name = results.rows, distance_name(results.rows)
    sizes = sorted({row["images"] for row in rows}, reverse=True)
    both = {f"{n:,}": tuple(values(rows, variant, name, images=n) for variant in ("ordered", "unordered")) for n in sizes}
    ahead, behind = _ahead({size: (a, b) for size, (a, b) in both.items()})
    parts = {"ordered": ahead, "unordered": behind, "either": [size for size in both if size not in (*ahead, *behind)]}
    answers = {variant: f"{variant} with {_join_and(where)} pictures" for variant, where in parts.items() if where}
    answer = next(iter(answers)) if len(answers) == 1 else ", ".join(answers.values())
    why = "; ".join(f"{size} training pictures: FID {mean(a):.1f} ordered, {mean(b):.1f} not" for size, (a, b) in both.items())
    return Recommendation("Ordered codes if you always draw all of them?", answer, why)


def tailored_choice(results: Results) -> Recommendation:
    """One anytime model or one for each length (Appendix C.5)."""
    rows, name = results.rows, distance_name(results.rows)
    codes = {row["fraction"]: row["codes"] for row in rows if row["series"] == "tailored"}
    both = {str(codes[f]): tuple(values(rows, s, name, fraction=f) for s in ("anytime", "tailored")) for f in FID_FRACTIONS}
    _, behind = _ahead({count: (a, b) for count, (a, b) in both.items()})
    answer = "one anytime model" if not behind else f"one of its own for {_join_and(behind)} codes, if that is all you need"
    why = "; ".join(f"{count} codes: FID {mean(a):.1f} anytime, {mean(b):.1f} tailored" for count, (a, b) in both.items())
    return Recommendation("One model, or one for each length?", answer, why)


def vae_choice(results: Results) -> Recommendation:
    """Whether continuous codes can be ordered (Appendix C.1)."""
    ordered, standard = (curve(results.rows, series, "fraction", "error") for series in vae.SERIES)
    short, full = (ordered[f] / standard[f] for f in (0.2, 1.0))
    why = f"a VAE's error from a fifth of its groups is {short:.2f} of the standard one's, from all of them {full:.2f}"
    return Recommendation("Order a VAE's latents in the same way?", "yes, if you ever stop early" if short < 1 else "no", why)


def pca_choice(results: Results) -> Recommendation:
    """Whether principal components are worth modelling (Appendix D)."""
    pixels, pca = (values(results.rows, space, "bits", part="held out") for space in ("pixels", "pca"))
    below = is_below(pca, pixels)
    why = f"{mean(pca):.2f} bits per dimension, {mean(pixels):.2f} for the pixels themselves with the same network"
    return Recommendation(
        "An autoregressive model of principal components?", {True: "yes", False: "no", None: "either"}[below], why
    )


CHOICES: dict[str, Callable[[Results], Recommendation]] = {
    "ordering": ordering_choice,
    "reconstruction": ordering_choice,
    "layout": layout_choice,
    "fid": length_choice,
    "truncation": truncation_choice,
    "priors": prior_choice,
    "regularization": size_choice,
    "tailored": tailored_choice,
    "vae": vae_choice,
    "pca-prior": pca_choice,
}


def _best(results: Results, series: Sequence[str]) -> tuple[list[str], str]:
    """Those that nobody is ahead of on average over the fractions, and the averages."""
    name = distance_name(results.rows)
    by_seed = {one: mean_over(results.rows, one, name, fraction=FID_FRACTIONS) for one in series}
    best = [one for one in series if not any(is_below(by_seed[other], by_seed[one]) for other in series if other != one)]
    why = "; ".join(f"{one}: FID {mean(numbers):.1f}" for one, numbers in by_seed.items())
    return best, f"on average over the lengths {why}"


def _ahead(pairs: dict[str, tuple[Values, Values]]) -> tuple[list[str], list[str]]:
    """Places where the first is below the second, and where it is above."""
    found = {place: is_below(a, b) for place, (a, b) in pairs.items()}
    return [place for place, is_less in found.items() if is_less], [
        place for place, is_less in found.items() if is_less is False
    ]


def _join_or(names: Sequence[str]) -> str:
    return " or ".join(names)


def _join_and(names: Sequence[str]) -> str:
    """
    >>> _join_and(["14"]), _join_and(["14", "28", "42"])
    ('14', '14, 28 and 42')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    write_atomic(target, page(source, target).encode())
