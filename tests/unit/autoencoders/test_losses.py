from __future__ import annotations

import pytest
import torch

from anytime.autoencoders.losses import squared_error, vq_losses
from anytime.autoencoders.quantizer import Quantized

X = torch.tensor([[[0.0, 1.0], [2.0, 3.0]], [[1.0, 1.0], [1.0, 1.0]]])
X_HAT = torch.tensor([[[0.0, 0.0], [2.0, 1.0]], [[0.0, 1.0], [1.0, 0.5]]])
QUANTIZED = Quantized(
    latents=torch.zeros(2, 3, 2),
    codes=torch.zeros(2, 3, dtype=torch.long),
    loss=torch.tensor([[1.0, 10.0, 100.0], [2.0, 4.0, 8.0]]),
)


def test_squared_error_sums_over_everything_but_the_batch() -> None:
    assert squared_error(X, X_HAT).tolist() == [5.0, 1.25]


def test_sum_divides_every_term_by_the_size_of_x() -> None:
    losses = vq_losses(X, X_HAT, QUANTIZED, torch.tensor([2, 1]), "sum")
    assert losses.reconstruction.tolist() == [5 / 4, 1.25 / 4]
    assert losses.quantization.tolist() == [11 / 4, 2 / 4]
    assert losses.total.tolist() == [16 / 4, 3.25 / 4]


def test_mean_averages_the_quantizers_terms_over_kept_rows() -> None:
    losses = vq_losses(X, X_HAT, QUANTIZED, torch.tensor([2, 3]), "mean")
    assert losses.reconstruction.tolist() == [5 / 4, 1.25 / 4]
    assert losses.quantization.tolist() == pytest.approx([11 / (2 * 2), 14 / (3 * 2)])
    assert losses.total.tolist() == pytest.approx([5 / 4 + 11 / 4, 1.25 / 4 + 14 / 6])


def test_full_codes_are_eq_5() -> None:
    keep = torch.tensor([3, 3])
    assert vq_losses(X, X_HAT, QUANTIZED, keep, "sum").quantization.tolist() == [111 / 4, 14 / 4]
