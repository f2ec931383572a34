from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anytime.core.errors import UserError
from anytime.priors.prior import Prior
from anytime.priors.transformer import Transformer, TransformerBlock, TransformerConfig

SMALL: dict[str, Any] = {"length": 7, "codebook_size": 11, "layers": 3, "width": 24, "hidden": 40, "heads": 4}


@pytest.fixture(scope="module")
def small() -> Transformer:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**SMALL, dropout=0.0))
    with torch.no_grad():  # away from initial values, so that a missing bias or norm is noticed
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def codes() -> Tensor:
    return torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(0))


def oracle_layer(block: TransformerBlock, config: TransformerConfig) -> nn.TransformerEncoderLayer:
    """Build torch's post-norm layer with the same weights."""
    layer = nn.TransformerEncoderLayer(
        config.width, config.heads, config.hidden, dropout=0.0, activation="relu", batch_first=True, norm_first=False
    )
    theirs = {
        "self_attn.in_proj": block.qkv,
        "self_attn.out_proj": block.out,
        "linear1": block.up,
        "linear2": block.down,
        "norm1": block.attention_norm,
        "norm2": block.norm,
    }
    state = {}
    for name, module in theirs.items():
        joint = "_" if name.endswith("in_proj") else "."
        state |= {f"{name}{joint}{part}": getattr(module, part).detach() for part in ("weight", "bias")}
    layer.load_state_dict(state)
    return layer


@torch.no_grad()
def test_forward_against_torchs_own_layers(small: Transformer, codes: Tensor) -> None:
    tokens = torch.cat([torch.full((5, 1), 11), codes[:, :-1]], 1)
    h = F.embedding(tokens, small.tokens.weight) + small.positions.weight
    h = F.layer_norm(h, (24,), small.embedding_norm.weight, small.embedding_norm.bias)
    later = torch.ones(7, 7, dtype=torch.bool).triu(1)
    for block in small.blocks:
        assert isinstance(block, TransformerBlock)
        h = oracle_layer(block, small.config)(h, src_mask=later)
    expected = h @ small.tokens.weight[:11].T
    torch.testing.assert_close(small(codes), expected, atol=1e-4, rtol=1e-4)


def expected_parameters(length: int, codebook_size: int, layers: int = 6, width: int = 512, hidden: int = 2048) -> int:
    embeddings = (codebook_size + 1 + length) * width + 2 * width
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * hidden + hidden + width
    return embeddings + layers * (attention + feed_forward + 4 * width)


@pytest.mark.parametrize(("length", "codebook_size"), [(16, 126), (70, 1000), (100, 500)])
def test_the_papers_size(length: int, codebook_size: int) -> None:
    config = TransformerConfig(length=length, codebook_size=codebook_size)
    assert (config.layers, config.width, config.hidden, config.heads, config.dropout) == (6, 512, 2048, 8, 0.1)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in Transformer(config).parameters())
    assert count == expected_parameters(length, codebook_size)


def test_the_papers_parameter_count() -> None:
    assert expected_parameters(70, 1000) == 19_463_680


def test_input_and_output_embeddings_are_tied(small: Transformer, codes: Tensor) -> None:
    model = copy.deepcopy(small)
    before = model(codes)
    with torch.no_grad():
        model.tokens.weight[4] += 1.0
    after = model(codes[:1, :1])
    changed = (after - before[:1, :1]).abs()[0, 0] > 1e-6
    assert changed.nonzero()[:, 0].tolist() == [4], "the first logits depend on code 4 only through the output"
    assert sum(parameter.shape == model.tokens.weight.shape for parameter in model.parameters()) == 1


def test_the_start_symbol_cannot_be_sampled(small: Transformer, codes: Tensor) -> None:
    assert small.tokens.num_embeddings == small.codebook_size + 1
    assert small(codes).shape == (5, 7, small.codebook_size)
    assert small.step(None, small.start(5))[0].shape == (5, small.codebook_size)


def test_positions_are_learned_and_matter(small: Transformer) -> None:
    same = torch.full((1, 7), 3)
    logits = small(same)
    assert (logits[0, 1:].diff(dim=0).abs().amax(-1) > 1e-3).all()


def test_dropout_acts_in_training_only(codes: Tensor) -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**SMALL, dropout=0.5))
    assert not torch.equal(model.train()(codes), model(codes))
    assert torch.equal(model.eval()(codes), model(codes))


def test_there_is_no_step_after_the_last(small: Transformer, codes: Tensor) -> None:
    state = small.start(5)
    for position in range(7):
        _, state = small.step(codes[:, position - 1] if position else None, state)
    with pytest.raises(ValueError, match="all 7 codes"):
        small.step(codes[:, -1], state)


def test_it_is_a_prior(small: Transformer) -> None:
    assert isinstance(small, Prior)
    assert (small.length, small.codebook_size) == (7, 11)


def test_initial_weights() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(length=8, codebook_size=400, layers=1, width=64, hidden=256))
    assert model.tokens.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    up = model.blocks[0].up
    assert isinstance(up, nn.Linear)
    bound = (6 / (64 + 256)) ** 0.5
    assert 0.95 * bound < up.weight.abs().max() <= bound
    assert (up.bias == 0).all()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layers": 0}, "layers"),
        ({"heads": 5}, r"`prior.heads` \(5\) must divide `prior.width` \(24\)"),
        ({"dropout": 1.0}, "dropout"),
        ({"length": 0}, "length"),
    ],
)
def test_impossible_shapes_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        TransformerConfig(**SMALL | change)
