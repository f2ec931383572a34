"""Nested dropout: the distribution of `keep`, the number of codes kept in training, and the truncation (Section 3.1, Eq. 6).

A random `keep` puts the codes into order: early codes are kept most often, so they carry the most important information.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anytime.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Full:
    """keep = length: an ordinary, unordered VQ-VAE (Eq. 5)."""


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """keep ~ U{1..length}: the order-inducing objective (Eq. 6)."""


@dataclass(frozen=True, kw_only=True)
class Geometric:
    """Pr(keep = k) = (1 - p)^(k - 1) p / (1 - (1 - p)^length) on {1..length} (Appendix C.3)."""

    p: float
    """Success probability, in (0, 1). As p -> 0 the distribution becomes Uniform."""

    def __post_init__(self) -> None:
        if not 0 < self.p < 1:
            raise UserError(f"`truncation` geometric needs a p between 0 and 1, not {self.p}")


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Full with probability `full`, else Uniform: trains the last codes more often."""

    full: float = 0.5
    """Probability of keeping every code, in [0, 1]."""

    def __post_init__(self) -> None:
        if not 0 <= self.full <= 1:
            raise UserError(f"`truncation` mixture needs a probability between 0 and 1, not {self.full}")


Truncation = Full | Uniform | Geometric | Mixture


def parse_truncation(text: str) -> Truncation:
    """Parse full, uniform, geometric:0.03 or mixture:0.5."""
    name, colon, argument = text.partition(":")
    plain: dict[str, Truncation] = {"full": Full(), "uniform": Uniform()}
    if name in plain and not colon:
        return plain[name]
    try:
        if name == "geometric":
            return Geometric(p=float(argument))
        if name == "mixture":
            return Mixture(full=float(argument))
    except UserError:
        raise
    except ValueError:
        pass
    raise UserError(f"`truncation` {text!r} is unknown; use full, uniform, geometric:0.03 or mixture:0.5")


def probabilities(distribution: Truncation, length: int) -> Float[Tensor, " length"]:
    """Return Pr(keep = 1), …, Pr(keep = length) in float64."""
    steps = torch.arange(length, dtype=torch.float64)
    match distribution:
        case Full():
            return (steps == length - 1).double()
        case Uniform():
            return torch.full((length,), 1 / length, dtype=torch.float64)
        case Geometric(p=p):
            return torch.softmax(steps * torch.log1p(torch.tensor(-p, dtype=torch.float64)), dim=0)
        case Mixture(full=full):
            return full * probabilities(Full(), length) + (1 - full) * probabilities(Uniform(), length)


def sample_keep(distribution: Truncation, length: int, uniforms: Float[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
    """Return `keep` for each uniform number, by inverting the distribution function."""
    edges = probabilities(distribution, length).cumsum(0)[:-1].to(uniforms.device)
    return torch.searchsorted(edges, uniforms.double(), right=True) + 1


def keep_mask(keep: Int[Tensor, " batch"], length: int) -> Bool[Tensor, "batch length"]:
    """Return True at the first `keep` codes."""
    return torch.arange(length, device=keep.device) < keep[:, None]


def truncate(latents: Float[Tensor, "batch length dim"], keep: Int[Tensor, " batch"]) -> Float[Tensor, "batch length dim"]:
    """Zero every code after the first `keep` (Section 3.1)."""
    return latents * keep_mask(keep, latents.shape[1])[..., None]
