from __future__ import annotations

import pytest
import torch

from anytime.metrics import precision_recall
from anytime.metrics.precision_recall import compute_precision_recall


def normal(n: int, size: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def test_coverage_by_hand() -> None:
    """Third neighbours of 0, 1, 2, 3 and 10 on a line are 3, 2, 2, 3 and 9 away: each reaches that far."""
    real = torch.tensor([0.0, 1.0, 2.0, 3.0, 10.0])[:, None]
    samples = torch.tensor([-3.1, -2.9, 0.5, 5.0, 19.1])[:, None]
    assert compute_precision_recall(samples, real).precision == pytest.approx(3 / 5)
    assert compute_precision_recall(real, samples).recall == pytest.approx(3 / 5)
    assert compute_precision_recall(samples, real, nearest=1).precision == pytest.approx(2 / 5)


def test_coverage_of_a_set_by_itself_a_part_and_a_stranger() -> None:
    whole = normal(300)
    assert compute_precision_recall(whole, whole) == precision_recall.PrecisionRecall(1.0, 1.0)
    narrow = compute_precision_recall(0.1 * normal(300, seed=1), whole)
    assert narrow.precision > 0.9
    assert narrow.recall < 0.2
    assert compute_precision_recall(whole + 100, whole) == precision_recall.PrecisionRecall(0.0, 0.0)


def test_blocks_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = normal(150), normal(130, seed=1) + 0.3
    whole = compute_precision_recall(a, b)
    monkeypatch.setattr(precision_recall, "BLOCK", 7)
    assert compute_precision_recall(a, b) == whole
    assert 0 < whole.precision < 1


def test_two_points_are_enough() -> None:
    assert compute_precision_recall(normal(2), normal(2)) == precision_recall.PrecisionRecall(1.0, 1.0)
