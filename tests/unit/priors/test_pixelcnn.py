from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anytime import priors
from anytime.core.errors import UserError
from anytime.priors.pixelcnn import FIRST_KERNEL, KERNEL, PixelCNN, PixelCNNConfig
from anytime.priors.prior import Prior
from anytime.priors.transformer import Transformer, TransformerConfig

SMALL: dict[str, Any] = {"length": 14, "codebook_size": 11, "side": 4, "layers": 3, "width": 6, "head": 10}


@pytest.fixture(scope="module")
def small() -> PixelCNN:
    torch.manual_seed(0)
    model = PixelCNN(PixelCNNConfig(**SMALL))
    with torch.no_grad():  # away from initial values, so that a missing bias is noticed
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double()


@pytest.fixture(scope="module")
def codes() -> Tensor:
    return torch.randint(11, (5, 14), generator=torch.Generator().manual_seed(0))


def masked_convolution(layer: nn.Conv2d, x: Tensor, kernel: int, rows: bool, first: bool) -> Tensor:
    """A standard masked convolution: a square, padded kernel that is zero at later positions."""
    radius = kernel // 2
    weight = x.new_zeros(*layer.weight.shape[:2], kernel, kernel)
    if rows:
        weight[:, :, : radius + (not first)] = layer.weight
    else:
        weight[:, :, radius, : radius + (not first)] = layer.weight[:, :, 0]
    return F.conv2d(x, weight, layer.bias, padding=radius)


@torch.no_grad()
def test_forward_against_masked_convolutions(small: PixelCNN, codes: Tensor) -> None:
    """Gated PixelCNN as printed: both stacks gated, a 1 × 1 link from the vertical one before its gate, a residual sum."""
    v = h = F.pad(small.tokens(codes), (0, 0, 0, 2)).view(5, 4, 4, 6).permute(0, 3, 1, 2)
    for index, layer in enumerate(small.layers):
        kernel, first = (FIRST_KERNEL, True) if index == 0 else (KERNEL, False)
        above = masked_convolution(layer.vertical, v, kernel, rows=True, first=first)
        across = masked_convolution(layer.horizontal, h, kernel, rows=False, first=first)
        both = across + layer.link(above)
        new = layer.out(torch.tanh(both[:, :6]) * torch.sigmoid(both[:, 6:]))
        v, h = torch.tanh(above[:, :6]) * torch.sigmoid(above[:, 6:]), new if first else h + new
    expected = small.head(h.permute(0, 2, 3, 1)).view(5, 16, 11)[:, :14]
    torch.testing.assert_close(small(codes), expected, atol=1e-10, rtol=0)


def expected_parameters(codebook_size: int, layers: int = 15, width: int = 64, head: int = 512) -> int:
    def layer(rows: int, kernel: int) -> int:
        stacks = (rows * kernel + rows) * 2 * width * width + 4 * width
        return stacks + 4 * width * width + 2 * width + width * width + width

    heads = width * head + head + head * codebook_size + codebook_size
    return codebook_size * width + layer(3, 7) + (layers - 1) * layer(2, 3) + heads


@pytest.mark.parametrize(("length", "side", "codebook_size"), [(64, 8, 512), (256, 16, 512), (70, 9, 1000)])
def test_the_baselines_size(length: int, side: int, codebook_size: int) -> None:
    config = PixelCNNConfig(length=length, side=side, codebook_size=codebook_size)
    assert (config.layers, config.width, config.head) == (15, 64, 512)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in PixelCNN(config).parameters())
    assert count == expected_parameters(codebook_size)


def test_the_baselines_parameter_count() -> None:
    assert expected_parameters(512) == 1_756_736


def test_at_full_size_every_position_depends_on_all_before() -> None:
    """Fifteen layers cover 16 × 16: the last position depends on the first, the first on none."""
    torch.manual_seed(0)
    model = PixelCNN(PixelCNNConfig(length=256, codebook_size=4, side=16, width=4, head=8)).double()
    codes = torch.randint(4, (1, 256), generator=torch.Generator().manual_seed(0))
    embedded = model.tokens(codes).detach().requires_grad_()
    model.tokens.forward = lambda codes: embedded  # type: ignore[method-assign]
    for place in (0, 15, 16, 100, 255):
        (gradient,) = torch.autograd.grad(model(codes)[0, place].square().sum(), embedded, allow_unused=True)
        sizes = gradient[0].abs().amax(-1)
        assert (sizes[:place] > 0).all()
        assert (sizes[place:] == 0).all()


def test_a_row_does_not_depend_on_the_end_of_the_row_above_as_a_neighbour(small: PixelCNN, codes: Tensor) -> None:
    """The horizontal stack's state at the right edge is not a neighbour of the next row's first position."""
    state, other = small.start(5), small.start(5)
    with torch.no_grad():
        for position in range(5):
            given = codes[:, position - 1] if position else None
            if position == 4:
                other.left.fill_(9.0)
            logits, state = small.step(given, state)
            spoilt, other = small.step(given, other)
    assert torch.equal(logits, spoilt)


def test_weights_start_at_xavier_and_biases_at_zero() -> None:
    torch.manual_seed(0)
    model = PixelCNN(PixelCNNConfig(length=4, codebook_size=30, side=2, layers=2))
    vertical = model.layers[1].vertical
    bound = (6 / (64 * 6 + 128 * 6)) ** 0.5
    assert 0.95 * bound < vertical.weight.abs().max() <= bound
    assert (vertical.bias == 0).all()


def test_there_is_no_step_after_the_last(small: PixelCNN, codes: Tensor) -> None:
    state = small.start(5)
    with torch.no_grad():
        for position in range(14):
            _, state = small.step(codes[:, position - 1] if position else None, state)
    with pytest.raises(ValueError, match="all 14 codes"):
        small.step(codes[:, -1], state)


def test_it_is_a_prior(small: PixelCNN) -> None:
    assert isinstance(small, Prior)
    assert (small.length, small.codebook_size) == (14, 11)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layers": 0}, "layers"),
        ({"side": 3}, "a map of 3 × 3 is too small for 14 codes; raise `prior.side`"),
        ({"length": 17}, "too small for 17 codes"),
    ],
)
def test_impossible_shapes_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        PixelCNNConfig(**SMALL | change)


def test_each_config_builds_its_network() -> None:
    assert type(priors.build(PixelCNNConfig(**SMALL))) is PixelCNN
    assert type(priors.build(TransformerConfig(length=4, codebook_size=5, layers=1, width=8, hidden=8))) is Transformer
