"""Sampling from logits with Gumbel noise that is a counter-based hash of seed, row, position and category.

argmax(logits + Gumbel noise) is an exact sample of softmax(logits). Inverse-CDF sampling flips codes at rounding ties of a
long cumulative sum; here only a near-tie of the two best categories can flip.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.core import random
from anytime.core.errors import UserError
from anytime.sampling.budget import whole_number

CHUNK_SIZE = 16384
"""Noise values computed at once: enough to amortise the calls, too few to delay the first code."""


MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 100.0
"""At the lowest temperature sampling is almost always greedy; far below it, the divided logits would overflow."""


def check_temperature(temperature: float, name: str) -> None:
    """Refuse a temperature that is out of range."""
    if not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:  # NaN is refused too
        raise UserError(f"`{name}` must be between {MIN_TEMPERATURE:g} and {MAX_TEMPERATURE:g}, not {temperature}")


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How logits become a distribution: divided by the temperature, then filtered to the top k, then to the top p."""

    temperature: float = 1.0
    """Between 0.001, where sampling is almost always greedy, and 100."""
    top_k: int | None = None
    """Sample among the k most likely codes only; 1 is greedy."""
    top_p: float | None = None
    """Sample among the most likely codes that together hold this probability."""

    def __post_init__(self) -> None:
        check_temperature(self.temperature, "temperature")
        if self.top_k is not None and whole_number(self.top_k, "`top_k`") < 1:
            raise UserError(f"`top_k` must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"`top_p` must be above 0 and at most 1, not {self.top_p}")

    @property
    def filters(self) -> bool:
        """Whether some categories are excluded."""
        return self.top_k is not None or (self.top_p is not None and self.top_p < 1)

    def limits(self, categories: int) -> tuple[int, float]:
        """Return top k and top p as numbers; a top p of 2 excludes nothing, as a sum of probabilities may exceed 1."""
        top_k = categories if self.top_k is None else min(self.top_k, categories)
        return top_k, 2.0 if self.top_p is None or self.top_p >= 1 else self.top_p


def gumbel(
    seed: int, rows: Int[Tensor, " batch"], position: int | Int[Tensor, "positions 1 1"], categories: int
) -> Float[Tensor, "*positions batch categories"]:
    """Standard Gumbel noise for each row and category, at one position of the sequence or at several."""
    category = torch.arange(categories, dtype=torch.int32, device=rows.device)
    return random.uniform(seed, rows[:, None], position, category[None]).log_().neg_().log_().neg_()  # −log(−log(u))


class GumbelNoise:
    """The noise of one request, computed for several positions at once if there are few rows."""

    def __init__(self, seed: int, rows: Int[Tensor, " batch"], categories: int) -> None:
        self.seed, self.rows, self.categories = seed, rows, categories
        self.stride = max(1, CHUNK_SIZE // (len(rows) * categories))
        self._first, self._chunk = 0, rows.new_empty(0)

    def at(self, position: int) -> Float[Tensor, "batch categories"]:
        """Return the noise at one position."""
        return self.window(position, 1)[0]

    def window(self, position: int, count: int) -> Float[Tensor, "count batch categories"]:
        """Return the noise at `count` positions."""
        if not self._first <= position <= position + count <= self._first + len(self._chunk):
            positions = torch.arange(position, position + max(count, self.stride), device=self.rows.device)
            self._first, self._chunk = position, gumbel(self.seed, self.rows, positions[:, None, None], self.categories)
        return self._chunk[position - self._first :][:count]


def filter_logits(logits: Float[Tensor, "batch categories"], settings: SamplingSettings) -> Float[Tensor, "batch categories"]:
    """Return float32 logits divided by the temperature, −inf outside the top k and the top p."""
    logits = logits.float() / settings.temperature
    if not settings.filters:
        return logits
    top_k, top_p = (torch.full((len(logits),), value, device=logits.device) for value in settings.limits(logits.shape[1]))
    return filter_rows(logits, top_k, top_p)


def filter_rows(
    logits: Float[Tensor, "batch categories"], top_k: Int[Tensor, " batch"], top_p: Float[Tensor, " batch"]
) -> Float[Tensor, "batch categories"]:
    """Return logits that are −inf outside the top k and the top p of their row (see `SamplingSettings.limits`)."""
    ordered, index = logits.sort(descending=True, stable=True)
    threshold = ordered.gather(1, top_k[:, None] - 1)
    probability = ordered.masked_fill(ordered < threshold, -torch.inf).softmax(-1)
    # Outside: the mass before a category is already enough. The first category always stays.
    outside = (probability.cumsum(-1) - probability >= top_p[:, None]) | (ordered < threshold)
    return logits.masked_fill(torch.zeros_like(outside).scatter(1, index, outside), -torch.inf)


def gumbel_argmax(
    logits: Float[Tensor, "batch categories"], settings: SamplingSettings, noise: Float[Tensor, "batch categories"]
) -> Int[Tensor, " batch"]:
    """Sample the next code of each row."""
    return (filter_logits(logits, settings) + noise).argmax(-1)
