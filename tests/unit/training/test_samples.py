from __future__ import annotations

import torch

from anytime.model import AnytimeModel
from anytime.training import samples


def test_guesses_are_drawn_by_the_prior_given_the_right_codes(tiny: AnytimeModel) -> None:
    one = torch.randint(tiny.codebook_size, (1, tiny.length), generator=torch.Generator().manual_seed(0))
    guesses = samples.guessed(tiny.prior, one.expand(4000, -1), seed=1)
    assert guesses.shape == (4000, tiny.length) and guesses.dtype == torch.int32
    with torch.no_grad():
        wanted = tiny.prior(one)[0].softmax(-1)
    for position in (0, 3, tiny.length - 1):
        found = torch.bincount(guesses[:, position], minlength=tiny.codebook_size) / 4000
        torch.testing.assert_close(found, wanted[position], atol=0.04, rtol=0)
    assert not torch.equal(guesses[:, 0], guesses[:, 1]), "noise of its own at every position"


def test_a_rows_guesses_depend_on_its_number_only(tiny: AnytimeModel) -> None:
    codes = torch.randint(tiny.codebook_size, (700, tiny.length))
    guesses = samples.guessed(tiny.prior, codes, seed=1)
    assert torch.equal(samples.guessed(tiny.prior, codes[:30], seed=1), guesses[:30])
    assert not torch.equal(samples.guessed(tiny.prior, codes, seed=2), guesses)
