"""Law 4. One cached step equals the full forward pass; no output depends on a later code (checked by gradients)."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from anytime.priors import PriorNetwork
from anytime.priors.lstm import LSTMState
from anytime.priors.pixelcnn import PixelCNN, PixelCNNState
from anytime.priors.transformer import KVCache

State = KVCache | PixelCNNState | LSTMState


@pytest.fixture(scope="module")
def exact(prior: PriorNetwork) -> PriorNetwork:
    """The prior in float64, so that ten digits can be compared."""
    return copy.deepcopy(prior).double()


@pytest.fixture(scope="module")
def codes(prior: PriorNetwork) -> Tensor:
    return torch.randint(prior.codebook_size, (3, prior.length), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def stepped(prior: PriorNetwork, codes: Tensor, count: int) -> tuple[list[Tensor], State]:
    """Return the logits of positions 0..count−1 and the state after them."""
    state, logits = prior.start(len(codes)), []
    for position in range(count):
        step, state = prior.step(codes[:, position - 1] if position else None, state)
        logits.append(step)
    return logits, state


def test_steps_equal_the_full_pass(exact: PriorNetwork, codes: Tensor) -> None:
    steps, state = stepped(exact, codes, exact.length)
    torch.testing.assert_close(torch.stack(steps, 1), exact(codes), atol=1e-10, rtol=0)
    assert state.position.tolist() == [exact.length] * 3


def test_steps_equal_the_full_pass_in_float32(prior: PriorNetwork, codes: Tensor) -> None:
    steps, _ = stepped(prior, codes, prior.length)
    torch.testing.assert_close(torch.stack(steps, 1), prior(codes), atol=1e-5, rtol=1e-5)


def test_a_shorter_pass_equals_the_start_of_a_longer_one(exact: PriorNetwork, codes: Tensor) -> None:
    whole = exact(codes)
    for k in range(1, exact.length):
        torch.testing.assert_close(exact(codes[:, :k]), whole[:, :k], atol=1e-10, rtol=0)


def test_no_output_depends_on_a_later_code(exact: PriorNetwork, codes: Tensor) -> None:
    """The output at i depends on all codes 0..i−1 and no others. All priors but PixelCNN embed a start symbol before them."""
    first = 0 if isinstance(exact, PixelCNN) else 1
    seen: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    handle = exact.tokens.register_forward_hook(keep)
    try:
        for i in range(exact.length):
            weights = torch.randn(exact.codebook_size, dtype=torch.float64, generator=torch.Generator().manual_seed(i))
            (exact(codes)[:, i] @ weights).sum().backward()
            gradient = seen.pop().grad
            assert gradient is not None
            sizes = gradient.abs().amax(-1)[:, first:]
            assert (sizes[:, i:] == 0).all(), f"logits {i} look ahead"
            assert (sizes[:, :i] > 0).all(), f"logits {i} do not see all that came before"
    finally:
        handle.remove()
        exact.zero_grad(set_to_none=True)


def together(states: list[State]) -> State:
    """Join states to one batch; entries after a row's position get values that must never be read."""
    position = torch.cat([state.position for state in states])
    if isinstance(states[0], KVCache):
        for state in states:
            state.keys[:, :, :, int(state.position) :] = 50.0
            state.values[:, :, :, int(state.position) :] = 50.0
        keys, values = (torch.cat([getattr(state, name) for state in states], 1) for name in ("keys", "values"))
        return KVCache(keys, values, position, max(state.max_position for state in states))
    if isinstance(states[0], LSTMState):  # has no entries after a row's position
        hidden, cell = (torch.cat([getattr(state, name) for state in states], 1) for name in ("hidden", "cell"))
        return LSTMState(hidden, cell, position, max(state.max_position for state in states))
    margin = states[0].embedded.shape[1] - states[0].links.shape[-1]
    for state in states:  # the next step writes the last code of the prefix
        whole = state.embedded[:, margin:, margin:].flatten(1, 2)
        whole[:, int(state.position) - 1 :] = 50.0
        state.embedded[:, margin:, margin:] = whole.unflatten(1, (state.links.shape[-1], -1))
    above, links, left = (torch.cat([getattr(state, name) for state in states], 1) for name in ("above", "links", "left"))
    host_positions = frozenset().union(*(state.host_positions for state in states))
    return PixelCNNState(torch.cat([state.embedded for state in states]), above, links, left, position, host_positions)


@torch.no_grad()
def test_rows_at_different_positions_share_a_batch(exact: PriorNetwork, codes: Tensor) -> None:
    """Rows at positions 2, 5 and 9; entries after a row's position are never read."""
    taken = [2, 5, 9]
    expected = exact(codes)
    state = together([stepped(exact, codes[row : row + 1], count)[1] for row, count in enumerate(taken)])
    rows = torch.arange(3)
    for _ in range(exact.length - max(taken)):
        position = state.position
        logits, state = exact.step(codes[rows, position - 1], state)
        torch.testing.assert_close(logits, expected[rows, position], atol=1e-10, rtol=0)
        assert torch.equal(state.position, position + 1)


@torch.no_grad()
def test_rows_are_independent(exact: PriorNetwork, codes: Tensor) -> None:
    steps, _ = stepped(exact, codes, exact.length)
    for row in range(3):
        alone, _ = stepped(exact, codes[row : row + 1], exact.length)
        for together, single in zip(steps, alone, strict=True):
            torch.testing.assert_close(together[row], single[0], atol=1e-10, rtol=0)
