"""Verdicts of Appendix B. Every seed is decided on its own; a claim on which the seeds disagree is undecided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from anytime.core.results import Row, Verdict, curve, select
from anytime.evaluation.audio import AUDIO_FRACTIONS
from anytime.evaluation.classifier_training import MIN_DIGIT_ACCURACY
from anytime.experiments.registry import BEST_PAIR, PAIR
from anytime.metrics.audio import BANDS
from anytime.metrics.quality import distance_name

TRUNCATED = AUDIO_FRACTIONS[:-1]
METRICS = ("log_mel", "stft", *BANDS)
TEMPERATURES = (1.0, 0.8)
MIN_CLASSIFIED, GOAL_CLASSIFIED, MAX_TIME_SHARE, MIN_NEAREST_RATIO = 0.8, 0.95, 1 / 8, 0.5
"""Bounds of the verdicts, set before any model was measured."""
MAX_ABOVE_UNORDERED = 0.1
"""The paper's "comparable": the largest rise of the distance above the unordered model's. Younger than the first rows."""
RECIPES = {"paper": PAIR, "best": BEST_PAIR}
HELD_OUT = "held-out data"


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the claims of the appendix, and those that a user would rely on."""
    seeds = sorted({row["seed"] for row in rows if "seed" in row})
    by_seed = {seed: decide_seed([row for row in rows if row.get("seed", seed) == seed]) for seed in seeds}
    if len(by_seed) == 1:
        return by_seed[seeds[0]]
    return [_agreed(dict(zip(by_seed, each, strict=True))) for each in zip(*by_seed.values(), strict=True)]


def _agreed(each: dict[int, Verdict]) -> Verdict:
    """Combine the verdicts of several seeds on one claim."""
    first, found = next(iter(each.values())), {verdict.holds for verdict in each.values()}
    evidence = "; ".join(f"seed {seed}: {verdict.evidence}" for seed, verdict in each.items())
    return replace(first, holds=first.holds if len(found) == 1 else None, evidence=evidence)


def decide_seed(rows: list[Row]) -> list[Verdict]:
    """Decide the claims by the rows of one seed."""
    (data,) = (row for row in rows if row["series"] == HELD_OUT)
    verdicts, by_classifier = list[Verdict](), list[Verdict]()
    for recipe in RECIPES:
        verdicts += _reconstructions(rows, recipe)
        by_classifier += [_samples(rows, recipe), _comparable(rows, recipe)]
    verdicts.append(_best_beats_paper(rows))
    by_classifier += _classified(rows, data) if "classified" in data else []
    by_classifier.append(_not_memorised(rows, data))
    verdicts += by_classifier if one_classifier(rows) else [_several_classifiers(verdict) for verdict in by_classifier]
    return verdicts + [_first_clip_early(rows, device) for device in dict.fromkeys(r["device"] for r in rows if "device" in r)]


def one_classifier(rows: Sequence[Row]) -> bool:
    """Return whether all samples and the held-out data were measured with one and the same classifier."""
    compared = [row for row in rows if row["series"] == HELD_OUT or row.get("measure") == "samples"]
    digests = {row.get("audio_classifier") for row in compared}
    return len(digests) == 1 and None not in digests


def _several_classifiers(verdict: Verdict) -> Verdict:
    why = "undecided: the models were measured with different classifiers"
    return replace(verdict, holds=None, evidence=f"{verdict.evidence}; {why}")


def _by_fraction(rows: Sequence[Row], measure: str, variant: str, **where: Any) -> dict[float, Row]:
    return {row["fraction"]: row for row in select(rows, measure=measure, series=variant, **where)}


def _reconstructions(rows: list[Row], recipe: str) -> list[Verdict]:
    """Compare reconstructions and bands of a recipe's ordered and unordered run."""
    errors = select(rows, measure="error")
    lost, leads = list[str](), list[str]()
    for metric in METRICS:
        one, other = (curve(errors, variant, "fraction", metric) for variant in RECIPES[recipe])
        lost += [f"{metric} at {f:g}" for f in TRUNCATED if not one[f] < other[f]]
        worst = max(TRUNCATED, key=lambda f: one[f] / other[f])
        leads.append(f"{metric} {one[worst]:.3f} against {other[worst]:.3f} at {worst:g}")
    half = {row["band"]: row["codes"] for row in select(rows, measure="half-way", series=RECIPES[recipe][0])}
    low, *higher = (math.inf if half[band] is None else half[band] for band in BANDS)
    return [
        Verdict(
            f"{recipe} recipe: ordered beats unordered on every reconstruction metric at 1/16, 1/4 and 1/2 of the codes",
            not lost,
            (f"not so for {', '.join(lost)}; " if lost else "smallest lead: ") + "; ".join(leads),
            "the correct global structure using as few as 6.25% of the full code length",
        ),
        Verdict(
            f"{recipe} recipe, ordered: the low band's error falls first (fewest codes to halve it)",
            low < min(higher),
            "halved at " + ", ".join(f"{band} {'never' if half[band] is None else half[band]}" for band in BANDS),
            "low frequency features first, then higher frequency components",
        ),
        _refines(errors, recipe),
    ]


def _refines(errors: list[Row], recipe: str) -> Verdict:
    """Decide whether further codes refine the reconstructions of a recipe's ordered run."""
    distances = curve(errors, RECIPES[recipe][0], "fraction", "log_mel")
    return Verdict(
        f"{recipe} recipe, ordered: the log-mel distance falls from 1/16 to 1/4, 1/2 and all of the codes",
        all(distances[a] > distances[b] for a, b in pairwise(AUDIO_FRACTIONS)),
        ", ".join(f"{f:g}: {distances[f]:.3f}" for f in AUDIO_FRACTIONS),
        "gradually refines itself as more code dimensions are sampled",
    )


def _samples(rows: list[Row], recipe: str) -> Verdict:
    """Compare samples of a recipe's ordered and unordered run."""
    name = distance_name(rows)
    ordered, unordered = (_by_fraction(rows, "samples", variant, temperature=1.0) for variant in RECIPES[recipe])
    return Verdict(
        f"{recipe} recipe: {name} of samples at 1/16 and 1/4 of the codes is lower ordered than unordered",
        all(ordered[f][name] < unordered[f][name] for f in TRUNCATED[:2]),
        "; ".join(f"{f:g}: {ordered[f][name]:.1f} against {unordered[f][name]:.1f}" for f in AUDIO_FRACTIONS),
        "samples from the unordered VQ-VAE contain considerably more noise when using truncated codes",
    )


def _comparable(rows: list[Row], recipe: str) -> Verdict:
    """Compare samples of all codes, where order brings nothing."""
    name = distance_name(rows)
    ordered, unordered = (_by_fraction(rows, "samples", variant, temperature=1.0)[1.0][name] for variant in RECIPES[recipe])
    return Verdict(
        f"{recipe} recipe: {name} of samples of all codes is at most {MAX_ABOVE_UNORDERED:.0%} higher ordered than unordered",
        ordered <= (1 + MAX_ABOVE_UNORDERED) * unordered,
        f"{ordered:.1f} against {unordered:.1f}: {ordered / unordered - 1:+.0%}",
        "comparable sample quality to regular VQ-VAEs on several image and audio datasets",
    )


def _best_beats_paper(rows: list[Row]) -> Verdict:
    errors = select(rows, measure="error")
    lost, ratios = list[str](), list[str]()
    for name in METRICS:
        papers, ours = (curve(errors, variant, "codes", name) for variant, _ in RECIPES.values())
        every = [k for k in ours if k > 0]
        worst = max(every, key=lambda k: ours[k] / papers[k])
        if not ours[worst] < papers[worst]:
            lost.append(f"{name} at {sum(not ours[k] < papers[k] for k in every)} lengths")
        ratios.append(f"{name} at most {ours[worst] / papers[worst]:.2f} of the paper's (at {worst} codes)")
    return Verdict(
        "best recipe beats the paper's on every reconstruction metric at every length",
        not lost,
        (f"not so for {', '.join(lost)}; " if lost else "") + "; ".join(ratios),
    )


def _classified(rows: list[Row], data: Row) -> list[Verdict]:
    by = {t: _by_fraction(rows, "samples", BEST_PAIR[0], temperature=t) for t in TEMPERATURES}
    best = max(by, key=lambda t: by[t][1.0]["classified"])
    shares = {f: by[best][f]["classified"] for f in AUDIO_FRACTIONS}
    text = ", ".join(f"{f:g}: {share:.1%}" for f, share in shares.items())
    others = "; ".join(f"{by[t][1.0]['classified']:.1%} at temperature {t:g}" for t in by if t != best)
    goal = "is" if shares[1.0] >= GOAL_CLASSIFIED else "is not"
    digits = by[best][1.0]["by_digit"]
    return [
        Verdict(
            f"best recipe: at least {MIN_CLASSIFIED:.0%} of full-length samples are classified as a digit "
            f"with confidence over 0.9 (goal {GOAL_CLASSIFIED:.0%})",
            shares[1.0] >= MIN_CLASSIFIED,
            f"{shares[1.0]:.1%} at temperature {best:g}, the goal {goal} met; {others}",
        ),
        Verdict(
            "best recipe: the classified share rises with the code length",
            all(shares[a] < shares[b] for a, b in pairwise(AUDIO_FRACTIONS)),
            f"{text}, at temperature {best:g}",
        ),
        Verdict(
            "best recipe: every digit is among the classified samples",
            min(digits) > 0,
            ", ".join(f"{digit}: {count}" for digit, count in enumerate(digits)),
        ),
        Verdict(
            f"the classifier is right on at least {MIN_DIGIT_ACCURACY:.0%} of real digits by unseen speakers",
            data["accuracy"] >= MIN_DIGIT_ACCURACY,
            f"{data['accuracy']:.2%} of {data['accuracy_examples']:,}; "
            f"confident on {data['classified']:.1%} of the test speakers'",
        ),
    ]


def _not_memorised(rows: list[Row], data: Row) -> Verdict:
    full = _by_fraction(rows, "samples", BEST_PAIR[0], temperature=1.0)[1.0]
    return Verdict(
        "best recipe: samples are not memorised "
        f"(median distance to the nearest training example at least {MIN_NEAREST_RATIO} of that of held-out data)",
        full["nearest"] >= MIN_NEAREST_RATIO * data["nearest"],
        f"{full['nearest']:.2f} against {data['nearest']:.2f}; "
        f"first percentile {full['nearest_p01']:.2f} against {data['nearest_p01']:.2f}",
    )


def _first_clip_early(rows: list[Row], device: str) -> Verdict:
    texts, shares = list[str](), list[float]()
    for recipe, (variant, _) in RECIPES.items():
        own = _by_fraction(rows, "speed", variant, device=device)
        share = {f: own[f]["seconds_p50"] / own[1.0]["seconds_p50"] for f in AUDIO_FRACTIONS}
        shares.append(share[AUDIO_FRACTIONS[0]])
        factors = ", ".join(f"{f:g}: {own[f]['real_time_factor']:.4f}" for f in AUDIO_FRACTIONS)
        ratios = ", ".join(f"{f:g}: {share[f]:.3f}" for f in AUDIO_FRACTIONS)
        text = f"{shares[-1]:.3f} of the full run; real-time factor {factors}; share {ratios}"
        texts.append(f"{recipe}, {own[1.0]['engine']}: {text}")
    return Verdict(
        f"{device}: the first complete clip, from 1/16 of the codes, takes at most an eighth of the full run's time",
        max(shares) <= MAX_TIME_SHARE,
        "; ".join(texts),
    )
