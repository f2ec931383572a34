"""Theorem 1 on a toy problem small enough to enumerate: is an optimal code ordered, and what do the theorem's conditions do?

x takes six values. A code is four bits z_i = g_i(x) XOR m_i, where the noise m is independent of x. With the best decoder
Eq. 4 is −(1/K) Σ_i I(x; z_≤i) up to a constant (Appendix A), so only these mutual informations matter. All choices of the g_i
are tried, a bit and its complement counting once, and every mutual information is a finite sum. It is convex in q(z | x), so
no stochastic encoder is better than the best one without noise.

Each distribution of the noise is symmetric in the bits: swapping two of them, as the proof does, stays in the class.

- none, independent: given x the bits are independent of each other, as the theorem asks.
- shared: all bits flip together or none does. Given x, z_1 and z_2 depend on each other; later pairs do not, given also z_1.
  The theorem's condition holds as stated, from i = 3 on. It fails at i = 2, where the proof uses it as well.
- parity: an even number of bits flips, all such patterns with equal probability. The condition fails at i = K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anytime.core.environment import environment
from anytime.core.results import Results, Row, Verdict, select
from anytime.experiments.plots import new_figure, plot_curve

PROBABILITIES = (0.30, 0.24, 0.18, 0.13, 0.09, 0.06)
LENGTH = 4
FLIP = 0.1
TOLERANCE = 1e-9  # bits: an information is a sum of a few dozen float64 terms

OBJECTIVES = {"ordered": "every prefix", "unordered": "full length only"}
FROM_2 = ("none", "independent")  # distributions that meet the theorem's condition from i = 2 on
FROM_3 = (*FROM_2, "shared")  # and from i = 3 on


def noise_distributions(length: int) -> dict[str, Float[Tensor, " words"]]:
    """Return the distributions of m, as probabilities of the words m_1 … m_length; m_1 is the highest bit."""
    flips = torch.tensor([word.bit_count() for word in range(1 << length)], dtype=torch.float64)
    distributions = {
        "none": flips == 0,
        "independent": FLIP**flips * (1 - FLIP) ** (length - flips),
        "shared": (flips == 0) | (flips == length),
        "parity": flips % 2 == 0,
    }
    return {name: distribution.double() / distribution.double().sum() for name, distribution in distributions.items()}


def bits(values: int) -> Int[Tensor, "functions values"]:
    """Return all functions from the values of x to a bit, up to complement."""
    return torch.tensor([(0, *rest) for rest in product((0, 1), repeat=values - 1)])


def entropy(p: Float[Tensor, "*batch outcomes"]) -> Float[Tensor, "*batch"]:
    """Return −Σ p log2 p."""
    total: Tensor = -torch.special.xlogy(p, p).sum(-1)
    return total / math.log(2)


def mutual_informations(
    p: Float[Tensor, " values"], noise: Float[Tensor, " words"], length: int
) -> Float[Tensor, "encoders length"]:
    """Return I(x; z_≤i) in bits, i = 1 … length, of every encoder (g_1, …, g_length), the last function fastest."""
    g = bits(len(p))
    words, known = torch.zeros(1, len(p), dtype=torch.long), []
    for i in range(1, length + 1):
        words = (2 * words[:, None] + g).flatten(0, 1)  # the word g_1(x) … g_i(x) of every x
        distribution = torch.zeros(len(words), 1 << i, dtype=torch.float64).scatter_add_(1, words, p.expand(len(words), -1))
        flips = noise.view(1 << i, -1).sum(1)
        every = torch.arange(1 << i)
        z = distribution @ flips[every[:, None] ^ every]
        # Given x, z is the noise shifted by a constant: H(z_≤i | x) = H(m_≤i).
        known.append((entropy(z) - entropy(flips)).repeat_interleave(len(g) ** (length - i)))
    return torch.stack(known, 1)


def gains(known: Float[Tensor, "encoders length"]) -> Float[Tensor, "encoders length"]:
    """Return I(z_i; x | z_<i), by the chain rule."""
    return known.diff(dim=1, prepend=torch.zeros_like(known[:, :1]))


def rises(gained: Float[Tensor, "encoders length"]) -> Bool[Tensor, "encoders length"]:
    """Return where I(z_i; x | z_<i) > I(z_{i−1}; x | z_<i−1), which the theorem excludes; never at i = 1."""
    return gained.diff(dim=1, prepend=gained[:, :1]) > TOLERANCE


def dependence(noise: Float[Tensor, " words"], i: int) -> float:
    """Return I(z_{i−1}; z_i | x, z_<i−1), which the theorem assumes to be zero; given x, z is equivalent to m."""
    upto = {k: float(entropy(noise.view(1 << k, -1).sum(1))) for k in (i - 2, i - 1, i)}
    length = noise.numel().bit_length() - 1
    without = noise.view(1 << (i - 2), 2, 2, 1 << (length - i)).sum((1, 3)).flatten()  # m_<i−1 and m_i
    return upto[i - 1] + float(entropy(without)) - upto[i] - upto[i - 2]


def compute(probabilities: Sequence[float] = PROBABILITIES, length: int = LENGTH, command: str = "") -> Results:
    """Enumerate all encoders; count where the optima rise, for every prefix and for full length only."""
    p = torch.tensor(probabilities, dtype=torch.float64)
    rows: list[Row] = []
    for name, noise in noise_distributions(length).items():
        known = mutual_informations(p, noise, length)
        for series, objective in (("ordered", known.sum(1)), ("unordered", known[:, -1])):
            best = objective >= objective.max() - TOLERANCE
            rows += _rows(series, name, noise, gains(known[best]))
    data = f"x takes {len(p)} values, p = {', '.join(f'{v:g}' for v in p.tolist())}"
    facts = {**environment(torch.device("cpu")), "data": data}
    schedule = f"exhaustive: {len(bits(len(p))) ** length:,} encoders of {length} bits for each distribution of the noise"
    return Results("theorem", "discrete", command, facts, schedule, rows, decide(rows))


def _rows(series: str, name: str, noise: Float[Tensor, " words"], gained: Float[Tensor, "optima length"]) -> list[Row]:
    """Return the gains of the optimum that rises most, and in how many of the optima each code rises."""
    rise = gained.diff(dim=1).amax(1)
    shown = gained[int((rise >= rise.max() - TOLERANCE).nonzero()[0])].tolist()  # the first of equals, regardless of rounding
    rising = rises(gained)
    counts = rising.sum(0).tolist()
    shared = {"noise": name, "optima": len(gained), "unordered_optima": int(rising.any(1).sum())}
    return [
        {
            "series": f"{series}, noise {name}",
            "objective": OBJECTIVES[series],
            "code": i,
            "gain": gain,
            "rising": count,
            "dependence": dependence(noise, i) if i > 1 else None,
            **shared,
        }
        for i, (gain, count) in enumerate(zip(shown, counts, strict=True), start=1)
    ]


def decide(rows: list[Row]) -> list[Verdict]:
    """Decide the theorem as stated and as proved, its converse for unordered codes, and the need for its condition."""
    ordered = select(rows, objective=OBJECTIVES["ordered"])
    unordered = {row["noise"]: row for row in select(rows, objective=OBJECTIVES["unordered"])}

    def never_rises(distributions: Sequence[str], first: int) -> Verdict:
        own = [row for row in ordered if row["noise"] in distributions]
        count = sum(row["rising"] for row in own if row["code"] >= first)
        optima = sum(row["optima"] for row in own if row["code"] == 1)
        claim = f"I(z_i; x | z_<i) never rises at i ≥ {first} in an optimal code for Eq. 4 (noise {', '.join(distributions)})"
        paper = "stated for i ≥ 3" if first == 3 else "proved for i ≥ 2"
        return Verdict(claim, count == 0, f"{count} rises in {optima:,} optimal codes", paper)

    def condition_needed(distribution: str) -> Verdict:
        own = [row for row in ordered if row["noise"] == distribution]
        fails = [row["code"] for row in own if (row["dependence"] or 0) > TOLERANCE]
        at = [row["code"] for row in own if row["rising"] == row["optima"]]
        text = ", ".join(f"{row['gain']:.3f}" for row in own)
        where = f"condition fails at i = {', '.join(map(str, fails))}, all rise at i = {', '.join(map(str, at))}"
        return Verdict(
            f"without the condition it rises, exactly where the condition fails (noise {distribution})",
            bool(at) and at == fails,
            f"{where}; gains {text} bits",
            "z_i−1 ⊥ z_i given x and z_≤i−2 is assumed",
        )

    shares = {name: unordered[name]["unordered_optima"] / unordered[name]["optima"] for name in FROM_2}
    evidence = "; ".join(f"noise {name}: {share:.0%} of {unordered[name]['optima']:,} rise" for name, share in shares.items())
    claim = "a code that is optimal at full length only need not be ordered"
    return [
        never_rises(FROM_3, 3),
        never_rises(FROM_2, 2),
        Verdict(claim, all(share > 0 for share in shares.values()), evidence, "ordering comes from the objective of Eq. 4"),
        condition_needed("shared"),
        condition_needed("parity"),
    ]


def draw(results: Results) -> Any:
    """Draw I(z_i; x | z_<i) by code, for each distribution of the noise."""
    distributions = list(dict.fromkeys(row["noise"] for row in results.rows))
    figure = new_figure(2.6 * len(distributions), 3.2)
    for axes, distribution in zip(figure.subplots(1, len(distributions), sharey=True), distributions, strict=True):
        for series, style in (("ordered", "o-"), ("unordered", "x:")):
            label = f"best for {OBJECTIVES[series]}"
            plot_curve(axes, results.rows, f"{series}, noise {distribution}", "code", "gain", style, label)
        axes.set(title=f"noise: {distribution}", xlabel="code i", xticks=axes.lines[0].get_xdata())
    figure.axes[0].set_ylabel("I(z_i; x | z_<i), bits")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure
