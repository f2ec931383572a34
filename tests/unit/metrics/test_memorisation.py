from __future__ import annotations

import pytest
import torch

from anytime.metrics import memorisation


def test_nearest_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are found at distance 0, wherever they lie; the rest as an exact search finds them."""
    monkeypatch.setattr(memorisation, "BLOCK", 7)
    generator = torch.Generator().manual_seed(0)
    among = torch.randint(256, (40, 3, 4, 4), dtype=torch.uint8, generator=generator)
    x = torch.cat([among[[33, 2]], torch.randint(256, (5, 3, 4, 4), dtype=torch.uint8, generator=generator)])
    found = memorisation.nearest_images(x, among, 3, torch.device("cpu"))
    assert found.index[:2, 0].tolist() == [33, 2]
    assert found.distance[:2, 0].tolist() == [0.0, 0.0]
    apart = (x[:, None].double() - among[None].double()).flatten(2).square().mean(2).sqrt() / 255
    expected = apart.topk(3, dim=1, largest=False)
    torch.testing.assert_close(found.distance, expected.values)
    assert torch.equal(found.index, expected.indices)
    few = memorisation.nearest_images(x, among[:2], 3, torch.device("cpu"))
    assert few.index.shape == (7, 2)


def test_a_tie_counts_half() -> None:
    """Grey images: the first two are nearer to the one set, the last two as near to either."""

    def grey(*levels: int) -> torch.Tensor:
        return torch.tensor(levels, dtype=torch.uint8)[:, None, None].expand(-1, 4, 4)

    found = memorisation.compare_seen(grey(0, 5, 204, 255), grey(10, 204), grey(30, 204), torch.device("cpu"))
    assert found.seen_distance == pytest.approx(5 / 255)
    assert found.unseen_distance == pytest.approx(25 / 255)
    assert found.nearer_to_seen == 0.75


def test_copies_have_a_feature_distance_of_zero() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert memorisation.nearest_distances(x, x.flip(0)).max() == 0
    assert memorisation.nearest_distances(x[:1], x[:1] + 2).item() == pytest.approx(2 * 3**0.5)
