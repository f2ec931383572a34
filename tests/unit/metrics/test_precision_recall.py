from __future__ import annotations

import pytest
import torch

from anytime.metrics import precision_recall
from anytime.metrics.precision_recall import compute_kid, compute_precision_recall


def normal(n: int, size: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def test_kid_by_hand() -> None:
    """All pairs written out, over the subset that is the whole of two sets of two."""
    a, b = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    within_a, within_b = (0 / 2 + 1) ** 3, (0 / 2 + 1) ** 3
    between = ((2 / 2 + 1) ** 3 + 1 + 1 + (2 / 2 + 1) ** 3) / 4
    found = compute_kid(a, b, subsets=5)
    assert found.mean == pytest.approx(within_a + within_b - 2 * between)
    assert found.std == pytest.approx(0, abs=1e-12)
    assert found.subset == 2


def test_kid_of_one_distribution_is_nought_within_its_spread_and_of_two_is_not() -> None:
    same = compute_kid(normal(400), normal(400, seed=1))
    other = compute_kid(normal(400), normal(400, seed=1) + 0.5)
    assert abs(same.mean) < 2 * same.std
    assert same.std > 0
    assert other.mean > 10 * other.std
    assert same.subset == 200


def test_kid_is_fixed_by_its_seed() -> None:
    a, b = normal(100), normal(100, seed=1)
    assert compute_kid(a, b, seed=1) == compute_kid(a, b, seed=1)
    assert compute_kid(a, b, seed=1) != compute_kid(a, b, seed=2)


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
    assert compute_kid(normal(3), normal(2)).subset == 2


def test_nearest_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are found at distance 0, wherever they lie; the rest as an exact search finds them."""
    monkeypatch.setattr(precision_recall, "BLOCK", 7)
    generator = torch.Generator().manual_seed(0)
    among = torch.randint(256, (40, 3, 4, 4), dtype=torch.uint8, generator=generator)
    x = torch.cat([among[[33, 2]], torch.randint(256, (5, 3, 4, 4), dtype=torch.uint8, generator=generator)])
    found = precision_recall.nearest_images(x, among, 3, torch.device("cpu"))
    assert found.index[:2, 0].tolist() == [33, 2]
    assert found.distance[:2, 0].tolist() == [0.0, 0.0]
    apart = (x[:, None].double() - among[None].double()).flatten(2).square().mean(2).sqrt() / 255
    expected = apart.topk(3, dim=1, largest=False)
    torch.testing.assert_close(found.distance, expected.values)
    assert torch.equal(found.index, expected.indices)
    few = precision_recall.nearest_images(x, among[:2], 3, torch.device("cpu"))
    assert few.index.shape == (7, 2)


def test_nearer_to_one_set_than_to_another() -> None:
    """Grey pictures: the first two are nearer to the one set, the last two as near to either."""

    def grey(*levels: int) -> torch.Tensor:
        return torch.tensor(levels, dtype=torch.uint8)[:, None, None].expand(-1, 4, 4)

    found = precision_recall.compare_nearest(grey(0, 5, 204, 255), grey(10, 204), grey(30, 204), torch.device("cpu"))
    assert found == (pytest.approx(5 / 255), pytest.approx(25 / 255), 0.75)
