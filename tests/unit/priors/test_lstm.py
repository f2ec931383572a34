from __future__ import annotations

import pytest
import torch

from anytime import priors
from anytime.core.errors import UserError
from anytime.priors.lstm import LSTM, LSTMConfig, matching_width
from anytime.priors.prior import Prior
from anytime.priors.transformer import TransformerConfig

SMALL = LSTMConfig(length=6, codebook_size=10, layers=2, width=16)


def test_it_is_a_prior() -> None:
    assert isinstance(LSTM(SMALL), Prior)
    assert isinstance(priors.build(SMALL), LSTM)
    assert priors.build(SMALL).config.summary == "LSTM: 2 layers, width 16"


@pytest.mark.parametrize(("length", "codebook_size"), [(16, 126), (70, 1000), (100, 500)])
def test_the_width_is_chosen_for_the_transformers_number_of_weights(length: int, codebook_size: int) -> None:
    wanted = priors.parameter_count(TransformerConfig(length=length, codebook_size=codebook_size))
    width = matching_width(wanted, codebook_size)
    counts = {
        w: priors.parameter_count(LSTMConfig(length=length, codebook_size=codebook_size, width=w))
        for w in (width - 8, width, width + 8)
    }
    assert width % 8 == 0
    assert abs(counts[width] / wanted - 1) < 0.01
    assert min(counts, key=lambda w: abs(counts[w] - wanted)) == width


def test_weights_are_counted_without_allocating_them() -> None:
    assert priors.parameter_count(SMALL) == sum(p.numel() for p in LSTM(SMALL).parameters())


@torch.no_grad()
def test_the_forget_gate_starts_open() -> None:
    for layer in LSTM(SMALL).layers:
        _, forget, _, _ = layer.bias_ih_l0.chunk(4)
        assert bool((forget == 1).all())
        assert float(layer.bias_ih_l0.sum()) == 16
        assert float(layer.bias_hh_l0.abs().max()) == 0


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    prior, codes = LSTM(SMALL), torch.randint(10, (4, 6))
    assert not torch.equal(prior(codes), prior(codes))
    prior.eval()
    assert torch.equal(prior(codes), prior(codes))


@torch.no_grad()
def test_there_is_no_step_after_the_last() -> None:
    prior = LSTM(SMALL).eval()
    state = prior.start(2)
    for position in range(6):
        _, state = prior.step(None if position == 0 else torch.zeros(2, dtype=torch.long), state)
    with pytest.raises(ValueError, match="all 6 codes are sampled"):
        prior.step(torch.zeros(2, dtype=torch.long), state)


@torch.no_grad()
def test_a_state_outlives_the_step_after_it() -> None:
    """States are values: continuing twice from one of them gives the same."""
    prior = LSTM(SMALL).eval()
    _, state = prior.step(None, prior.start(1))
    once, twice = (prior.step(torch.tensor([3]), state)[0] for _ in range(2))
    assert torch.equal(once, twice)


@pytest.mark.parametrize("change", [{"layers": 0}, {"width": 0}, {"dropout": 1.0}, {"length": 0}])
def test_impossible_shapes_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(UserError, match="`prior"):
        LSTMConfig(**{"length": 6, "codebook_size": 10, "width": 16, **change})
