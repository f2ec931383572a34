"""The tables of samples in the gallery."""

from __future__ import annotations

import numpy as np
import torch

import build_gallery
from anytime.model import AnytimeModel


def test_a_row_is_one_sample_by_number_of_codes(tiny: AnytimeModel) -> None:
    tiles = build_gallery.by_code(tiny, 3, seed=0)
    assert tiles.shape == (3, tiny.length, 1, 28, 28) and tiles.dtype == torch.uint8
    assert torch.equal(tiles[:, 3], tiny.sample(3, seed=0, codes=4).uint8())
    image = build_gallery.table(tiles)
    assert image.size == (28 * tiny.length, 28 * 3)
    assert np.array_equal(np.asarray(image)[28:56, 56:84], tiles[1, 2, 0].numpy())


def test_rows_share_more_and_more_codes(tiny: AnytimeModel) -> None:
    tiles = build_gallery.alike(tiny, tiny.length, 3, seed=0)
    assert tiles.shape == (tiny.length + 1, 3, 1, 28, 28)
    assert torch.equal(tiles[-1, 0], tiles[-1, 1]) and not torch.equal(tiles[0, 0], tiles[0, 1])
    assert build_gallery.table(tiles.expand(-1, -1, 3, -1, -1)).mode == "RGB"
