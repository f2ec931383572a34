from __future__ import annotations

import torch

from anytime.data.augment import NUM_AUGMENTATIONS, SHIFTS, augment_images, augment_recordings
from anytime.data.recordings import segment_recordings


def test_augmented_images_differ_by_a_shift_or_a_flip() -> None:
    x = torch.randint(256, (3, 2, 6, 5), dtype=torch.uint8)
    every = [augment_images(x, index) for index in range(NUM_AUGMENTATIONS)]
    assert torch.equal(every[0], x) and torch.equal(every[1], x.flip(-1))
    assert len({tuple(y.flatten().tolist()) for y in every}) == NUM_AUGMENTATIONS
    assert torch.equal(every[2][..., 1:], x[..., :-1]), "to the right"
    assert torch.equal(every[2][..., 0], x[..., 0]), "the edge fills the gap"
    assert torch.equal(every[9], every[8].flip(-1))
    for index in range(0, NUM_AUGMENTATIONS, 2):
        down, right = SHIFTS[index // 2]
        assert torch.equal(every[index][..., 1 + down : 5 + down, 1 + right : 4 + right], x[..., 1:5, 1:4])


def test_augmented_recordings_differ_but_for_the_first() -> None:
    whole = segment_recordings(torch.arange(2500, dtype=torch.int16), [2500], ["a"], crop=1000)
    assert torch.equal(augment_recordings(whole, 3, 0, 0.2), whole.tiles())
    first, second, again = (
        augment_recordings(whole, 3, 1, 0.2),
        augment_recordings(whole, 3, 2, 0.2),
        augment_recordings(whole, 3, 1, 0.2),
    )
    assert torch.equal(first, again)
    assert first.shape != second.shape or not torch.equal(first, second)
