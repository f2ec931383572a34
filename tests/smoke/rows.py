"""Rows of codes that another program sampled, beside those of the eager engine in fp32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anytime.model import AnytimeModel
from anytime.sampling.gumbel import filter_logits, gumbel

ROUNDING = 1e-4
"""Largest gap of a tie, between noised logits of about 10 in size. Logits differ by up to 1e-5, noise by up to 2e-6."""


@torch.no_grad()
def compare_codes(model: AnytimeModel, codes: Tensor, expected: Tensor, seed: int) -> dict[str, Any]:
    """Return how many rows are equal, and the largest gap of noised logits at a first difference."""
    differing, gaps = (codes != expected).any(1).nonzero()[:, 0].tolist(), [0.0]
    for row in differing:
        position = int((codes[row] != expected[row]).nonzero()[0])
        logits = filter_logits(model.prior(expected[row : row + 1])[:, position], model.settings())
        noised = (logits + gumbel(seed, torch.tensor([row]), position, model.codebook_size))[0]
        gaps.append(float(noised.max() - noised[codes[row, position]]))
    return {"rows": len(codes), "equal": len(codes) - len(differing), "largest_gap": max(gaps)}


def check_codes(found: dict[str, Any]) -> None:
    """At least 99.9 % of rows are equal, and every first difference is a rounding tie."""
    assert found["equal"] >= 0.999 * found["rows"]
    assert found["largest_gap"] < ROUNDING, "a difference is not a tie"
