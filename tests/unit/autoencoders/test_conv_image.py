from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from anytime.autoencoders.networks import conv_image
from anytime.core import distributed
from anytime.recipes.presets import preset

PRESETS = {  # name: shape, length, dim, widths, kernels, strides
    "mnist": ((1, 28, 28), 16, 49, (16, 32), (4, 4, 3), (2, 2, 1)),
    "cifar10": ((3, 32, 32), 70, 16, (128, 256, 512), (4, 4, 4, 3), (2, 2, 2, 1)),
    "celeba": ((3, 64, 64), 100, 64, (128, 256, 512), (4, 4, 4, 3), (2, 2, 2, 1)),
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_papers_networks_have_the_papers_shapes(name: str) -> None:
    shape, length, dim, widths, kernels, strides = PRESETS[name]
    channels = [shape[0], *widths, length]
    with torch.device("meta"):  # shapes only, no arithmetic
        encoder, decoder = conv_image.encoder(channels, kernels, strides), conv_image.decoder(channels, kernels, strides)
        features = encoder(torch.empty(2, *shape))
        assert features.flatten(2).shape == (2, length, dim)
        assert decoder(features).shape == (2, *shape)
    assert conv_image.map_size(shape[1], kernels, strides) ** 2 == dim
    assert conv_image.image_size(math.isqrt(dim), kernels, strides) == shape[1]


@pytest.mark.parametrize("name", PRESETS)
def test_the_recipe_builds_these_networks(name: str) -> None:
    shape, length, dim, widths, kernels, strides = PRESETS[name]
    config = preset(name, "paper", shape).model.autoencoder
    assert (config.length, config.dim, config.layout) == (length, dim, "channel")
    assert (config.widths, config.kernels, config.strides) == (widths, kernels, strides)


def test_layers_in_order() -> None:
    encoder = conv_image.encoder([1, 4, 6, 5], (4, 4, 3), (2, 2, 1))
    kinds = [type(layer).__name__ for layer in encoder]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "ReLU", "Conv2d"]
    decoder = conv_image.decoder([1, 4, 6, 5], (4, 4, 3), (2, 2, 1))
    kinds = [type(layer).__name__ for layer in decoder]
    transposed = "ConvTranspose2d"
    assert kinds == [transposed, "BatchNorm2d", "ReLU", transposed, "BatchNorm2d", "ReLU", transposed, "Sigmoid"]
    convolutions = [layer for layer in decoder if isinstance(layer, nn.ConvTranspose2d)]
    assert [c.kernel_size[0] for c in convolutions] == [3, 4, 4]
    assert [c.out_channels for c in convolutions] == [6, 4, 1]


def test_the_original_vqvae_in_order() -> None:
    """Two halvings, two residual blocks, and back; without norm or ReLU between the last convolution and the first block."""
    encoder = conv_image.encoder([3, 5, 6], (4, 4), (2, 2), blocks=2)
    kinds = [type(layer).__name__ for layer in encoder]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNormResidualBlock", "BatchNormResidualBlock"]
    decoder = conv_image.decoder([3, 5, 6], (4, 4), (2, 2), blocks=2)
    kinds = [type(layer).__name__ for layer in decoder]
    transposed = "ConvTranspose2d"
    assert kinds == [
        "BatchNormResidualBlock",
        "BatchNormResidualBlock",
        "ReLU",
        transposed,
        "BatchNorm2d",
        "ReLU",
        transposed,
        "Sigmoid",
    ]
    x = torch.rand(2, 3, 32, 32)
    assert encoder(x).shape == (2, 6, 8, 8)
    assert decoder(encoder(x)).shape == x.shape


@torch.no_grad()
def test_a_residual_block_against_its_formula() -> None:
    torch.manual_seed(0)
    block = conv_image.BatchNormResidualBlock(3).eval()
    wide, narrow = block.block[1], block.block[4]
    assert wide.weight.shape == (6, 3, 3, 3) and narrow.weight.shape == (3, 6, 1, 1)
    assert wide.bias is None and narrow.bias is None, "the batch norms after them have one"
    x = torch.randn(2, 3, 5, 5)
    scale = (1 + 1e-5) ** -0.5  # a new batch norm
    inside = nn.functional.conv2d(x.relu(), wide.weight, padding=1) * scale
    expected = x + nn.functional.conv2d(inside.relu(), narrow.weight) * scale
    torch.testing.assert_close(block(x), expected)


def test_weights_start_at_xavier_and_biases_at_zero() -> None:
    torch.manual_seed(0)
    network = conv_image.encoder([1, 64, 32], (4, 4), (2, 2))
    first, last = network[0], network[-1]
    assert isinstance(first, nn.Conv2d) and isinstance(last, nn.Conv2d)
    bound = (6 / (1 * 16 + 64 * 16)) ** 0.5
    assert 0.95 * bound < first.weight.abs().max() <= bound
    assert first.bias is None, "the batch norm after it has one"
    assert last.bias is not None and (last.bias == 0).all()


def pair() -> tuple[conv_image.BatchNorm2d, nn.BatchNorm2d]:
    ours, theirs = conv_image.BatchNorm2d(3), nn.BatchNorm2d(3)
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(torch.tensor([0.5, 2.0, -1.0]))
            norm.bias.copy_(torch.tensor([1.0, 0.0, 3.0]))
    return ours, theirs


def inputs() -> Tensor:
    return 2 + 3 * torch.randn(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))


def compared(ours: nn.Module, theirs: nn.Module, x: Tensor, y: Tensor, exact: bool) -> None:
    """Compare outputs, gradients and running moments; `y` is the global batch, `x` this rank's part of it."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    a, b = ours(x), theirs(y)
    (a * weights).sum().backward()
    (b * weights.repeat(len(y) // len(x), 1, 1, 1)).sum().backward()
    tolerance = {"atol": 0, "rtol": 0} if exact else {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(a, b[: len(a)], **tolerance)
    torch.testing.assert_close(x.grad, y.grad[: len(a)], **tolerance)
    for name, buffer in ours.named_buffers():
        torch.testing.assert_close(buffer, dict(theirs.named_buffers())[name], **tolerance)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_with_one_rank_it_is_torchs_batch_norm(training: bool) -> None:
    ours, theirs = pair()
    for _ in range(3):
        compared(ours.train(training), theirs.train(training), inputs(), inputs(), exact=True)


@pytest.fixture
def two_equal_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a second rank with the same data: every sum doubles."""
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "all_reduce_sum_with_grad", lambda value: value + value)


@pytest.mark.usefixtures("two_equal_ranks")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_over_two_ranks_it_is_torchs_batch_norm_of_both_batches(training: bool) -> None:
    ours, theirs = pair()
    x = inputs()
    for _ in range(3):
        compared(ours.train(training), theirs.train(training), x, torch.cat([x, x]), exact=False)


@pytest.mark.usefixtures("two_equal_ranks")
def test_a_constant_channel_far_from_zero_stays_finite() -> None:
    ours, _ = pair()
    x = torch.full((4, 3, 7, 7), 123.4567, requires_grad=True)
    y = ours.train()(x)
    y.sum().backward()
    assert x.grad is not None
    assert y.isfinite().all() and x.grad.isfinite().all()
