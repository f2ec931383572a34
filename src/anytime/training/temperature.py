"""The temperature of every position that a prior should have been given: fitted on codes it was not trained on.

nats(β) = Σ log Σ_c exp(β (logit_c − logit_true)) over the examples is convex in β = 1 / temperature. Its value and slope are
summed at a few β while the logits pass by once; between two of them it is the cubic that both ends agree on, whose lowest
point is within a thousandth of the true one. Thousands of examples tell it to a hundredth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.priors.prior import Prior
from anytime.sampling.warmth import Warmth

BATCH = 250  # even: examples take turns between the two halves
STEPS = 6  # of β for each factor of two; temperatures lie between 1/2 and 2
PULL = 100.0  # towards 1, as hard as some fifty examples: where there are fewer, they are not believed


@torch.no_grad()
def fit(prior: Prior[Any], codes: Int[Tensor, "n length"]) -> Warmth:
    """What each position's logits should be divided by, and the bits of a code with and without.

    The bits with temperatures are those of each half of the examples under what the other half says.
    """
    one, other = _halves(prior, codes)
    whole = Curve(one.value + other.value, one.slope + other.slope)
    fitted = one.at(other.lowest()) + other.at(one.lowest())
    return Warmth(
        examples=len(codes),
        bits=_bits(whole.value[STEPS], codes),
        temperature=tuple((1 / whole.lowest()).tolist()),
        fitted_bits=_bits(fitted, codes),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Nats of some examples as a function of β, for every position, known at `_nodes`."""

    value: Tensor  # [nodes, length], float64
    slope: Tensor

    def lowest(self) -> Float[Tensor, " length"]:
        """The best β, pulled a little towards 1; strictly convex, so that there is one even where nothing was to be seen."""
        nodes = _nodes(self.value.device)[:, None]
        pulled = Curve(self.value + PULL / 2 * (nodes - 1) ** 2, self.slope + PULL * (nodes - 1))
        piece = Piece.of(pulled, (pulled.slope < 0).sum(0))
        low, high = torch.zeros_like(piece.start), torch.ones_like(piece.start)
        for _ in range(50):  # of a quadratic that changes its sign once, or at the ends of the range not at all
            middle = (low + high) / 2
            left = piece.slope(middle) < 0
            low, high = torch.where(left, middle, low), torch.where(left, high, middle)
        return piece.start + piece.width * (low + high) / 2

    def at(self, beta: Float[Tensor, " length"]) -> Float[Tensor, " length"]:
        piece = Piece.of(self, torch.searchsorted(_nodes(beta.device), beta))
        return piece.value((beta - piece.start) / piece.width)


@dataclass(frozen=True, slots=True)
class Piece:
    """A curve between two nodes, as the cubic with their values and slopes; a place in it is t from 0 to 1."""

    start: Tensor  # [length] β of the node on the left
    width: Tensor
    bottom: Tensor  # value on the left
    left: Tensor  # slopes
    right: Tensor
    mean: Tensor

    @staticmethod
    def of(curve: Curve, end: Int[Tensor, " length"]) -> Piece:
        """The piece that ends with this node, for every position."""
        nodes, end = _nodes(end.device), end.clamp(1, len(curve.value) - 1)[None]
        (below, above), (left, right) = ([t.gather(0, k)[0] for k in (end - 1, end)] for t in (curve.value, curve.slope))
        start, width = nodes[end[0] - 1], nodes[end[0]] - nodes[end[0] - 1]
        return Piece(start, width, below, left, right, (above - below) / width)

    def slope(self, t: Float[Tensor, " length"]) -> Float[Tensor, " length"]:
        a, b, m = self.left, self.right, self.mean
        return a + (6 * m - 4 * a - 2 * b) * t + 3 * (a + b - 2 * m) * t**2

    def value(self, t: Float[Tensor, " length"]) -> Float[Tensor, " length"]:
        a, b, m = self.left, self.right, self.mean
        return self.bottom + self.width * (a * t + (3 * m - 2 * a - b) * t**2 + (a + b - 2 * m) * t**3)


def _nodes(device: torch.device) -> Float[Tensor, " nodes"]:
    return 2 ** (torch.arange(-STEPS, STEPS + 1, dtype=torch.float64, device=device) / STEPS)


def _halves(prior: Prior[Any], codes: Int[Tensor, "n length"]) -> tuple[Curve, Curve]:
    """The curves of every other example, and of the rest."""
    nodes = _nodes(codes.device)
    sums = torch.zeros(2, 2, len(nodes), codes.shape[1], dtype=torch.float64, device=codes.device)  # half, value or slope
    for part in codes.long().split(BATCH):
        logits = prior(part).float()
        gaps = logits - logits.gather(2, part[..., None])
        for place, beta in enumerate(nodes.tolist()):
            scaled = beta * gaps
            found = torch.stack([scaled.logsumexp(2), (scaled.softmax(2) * gaps).sum(2)]).double()
            for half in range(2):
                sums[half, :, place] += found[:, half::2].sum(1)
    return Curve(*sums[0]), Curve(*sums[1])


def _bits(nats: Float[Tensor, " length"], codes: Int[Tensor, "n length"]) -> tuple[float, ...]:
    return tuple((nats / len(codes) / math.log(2)).tolist())
