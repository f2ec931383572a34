from __future__ import annotations

import torch

from anytime.data.loader import to_int16
from anytime.evaluation.audio_augment import (
    TRANSFORMS,
    apply_transforms,
    augment_digits,
    augment_transforms,
    shuffle_segments,
)

TIME = 4096


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clips(count: int) -> torch.Tensor:
    return 0.1 * torch.randn(count, 1, TIME, generator=generator(1))


def test_only_whole_segments_are_shuffled() -> None:
    x = torch.arange(2.0 * 103).view(2, 1, 103)
    y = shuffle_segments(x, 20, generator())
    assert torch.equal(y[..., 100:], x[..., 100:]), "the remainder stays"
    before, after = (z[..., :100].view(2, 5, 20) for z in (x, y))
    assert not torch.equal(before, after)
    for row in range(2):
        assert sorted(map(tuple, after[row].tolist())) == list(map(tuple, before[row].tolist()))


def test_transforms() -> None:
    x = clips(5)
    found = apply_transforms(x, torch.arange(len(TRANSFORMS)))
    assert torch.equal(found[0], x[0])
    assert torch.equal(found[1], x[1].flip(1))
    assert torch.equal(found[2, :, : TIME // 2], x[2, :, TIME // 2 :])
    assert not found[3, :, 3 * TIME // 4 + 1 :].any(), "a faster clip ends sooner"
    assert found[4].any() and not torch.equal(found[4], x[4])


def test_a_sixth_becomes_negative() -> None:
    x, digits = to_int16(clips(60)), torch.arange(60) % 10
    maps, labels = augment_digits(x, digits, 10, generator())
    assert maps.shape == (60, 1, 80, 17)
    assert labels.tolist() == [10] * 10 + digits[10:].tolist()
    assert digits[0] == 0, "the given labels are unchanged"
    maps, labels = augment_transforms(x, digits, 5, generator())
    assert labels[:10].tolist() == [5] * 10
    assert set(labels[10:].tolist()) == set(range(len(TRANSFORMS)))


def test_augmentation_is_a_function_of_the_generator() -> None:
    x, digits = to_int16(clips(12)), torch.arange(12) % 10
    state = torch.random.get_rng_state()
    first, again, other = (augment_digits(x, digits, 10, generator(seed))[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state), "torch's global generator is not used"


def test_a_few_clips_have_no_negative() -> None:
    x, digits = to_int16(clips(3)), torch.arange(3)
    for augment in (augment_digits, augment_transforms):
        maps, labels = augment(x, digits, 10, generator())
        assert len(maps) == 3
        assert 10 not in labels
