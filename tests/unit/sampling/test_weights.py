"""The hash of the weights follows every change that torch counts, and engines follow the hash."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from anytime.core import storage
from anytime.core.errors import UserError
from anytime.model import AnytimeModel
from anytime.sampling.budget import Budget
from anytime.sampling.weights import WeightsHash


def load_others(model: AnytimeModel) -> None:
    model.load_state_dict({name: tensor + 1 for name, tensor in model.state_dict().items()})


def add_in_place(model: AnytimeModel) -> None:
    with torch.no_grad():
        model.prior.tokens.weight.add_(1)


def optimise(model: AnytimeModel) -> None:
    model.autoencoder.quantizer.codebook.sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()


def replace_a_parameter(model: AnytimeModel) -> None:
    codebook = model.autoencoder.quantizer.codebook
    model.autoencoder.quantizer.codebook = nn.Parameter(codebook.detach() + 1)


def assign_data_twice(model: AnytimeModel) -> None:
    """The second tensor may get the address of the first."""
    for _ in range(2):
        model.autoencoder.quantizer.codebook.data = model.autoencoder.quantizer.codebook.data + 1


def change_a_buffer(model: AnytimeModel) -> None:
    next(model.autoencoder.buffers()).add_(1)


def replace_a_module(model: AnytimeModel) -> None:
    model.prior.tokens = copy.deepcopy(model.prior.tokens)
    with torch.no_grad():
        model.prior.tokens.weight[0] = 7


def edit_data_in_training(model: AnytimeModel) -> None:
    model.train()
    model.autoencoder.quantizer.codebook.data.add_(1)
    model.eval()


CHANGES = [
    load_others, add_in_place, optimise, replace_a_parameter, assign_data_twice, change_a_buffer, replace_a_module,
    edit_data_in_training,
]  # fmt: skip


@pytest.fixture
def model(tiny: AnytimeModel) -> AnytimeModel:
    return copy.deepcopy(tiny)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_hash_is_never_stale(model: AnytimeModel, change: Callable[[AnytimeModel], None]) -> None:
    coarse, before = model.sample(2, codes=3), model.hash
    session = model.session(2)
    change(model)
    assert model.hash == storage.digest(model.state_dict()) != before
    assert model.sample(2).model == model.hash
    with pytest.raises(UserError, match="the sample belongs to another model"):
        model.refine(coarse)
    with pytest.raises(UserError, match="the weights have changed since the session began"):
        session.run(Budget(codes=8))


def test_a_prior_that_is_replaced_is_sampled_from(model: AnytimeModel) -> None:
    model.sample(2)
    other = copy.deepcopy(model)
    add_in_place(other)
    with torch.no_grad():
        other.prior.positions.weight.mul_(9)
    model.prior = copy.deepcopy(other.prior)
    assert model.hash == other.hash
    assert torch.equal(model.sample(9).codes, other.sample(9).codes)


def test_a_session_leaves_the_training_mode(model: AnytimeModel) -> None:
    """Dropout would change the codes."""
    full, session = model.sample(9), model.session(9)
    model.train()
    assert torch.equal(session.run(Budget(codes=8)).codes, full.codes)


def test_the_hash_is_not_stale_after_saving_or_copying(model: AnytimeModel, tmp_path) -> None:  # type: ignore[no-untyped-def]
    model.save(tmp_path)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.hash == model.hash
        add_in_place(other)
        assert other.hash != model.hash
    before = model.hash
    add_in_place(model)
    assert model.hash != before


def test_the_engine_is_built_again_with_other_weights(model: AnytimeModel) -> None:
    """Other engines hold copies of the weights."""
    engine = model.engine
    model.sample(1)
    assert model.engine is engine
    add_in_place(model)
    model.sample(1)
    assert model.engine is not engine


def test_weights_of_inference_mode_are_hashed_every_time() -> None:
    """Torch does not count their changes."""
    with torch.inference_mode():
        module = nn.Linear(2, 2)
    weights_hash = WeightsHash(module)
    before = weights_hash()
    with torch.inference_mode():
        module.weight.add_(1)
    assert weights_hash() != before


def test_hashing_happens_once(model: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model.sample(1)
    monkeypatch.setattr(storage, "digest", lambda tensors: pytest.fail("hashed again"))
    model.refine(model.sample(1, codes=2))
