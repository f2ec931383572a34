from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anytime.baselines.logistic_mixture import mixture_parameter_count
from anytime.baselines.pixelcnn_pp import PixelCNNPlusPlus, PixelCNNPlusPlusConfig
from anytime.core.errors import UserError

SMALL = {"width": 6, "blocks": 2, "stages": 3, "mixtures": 3}


def network(shape: tuple[int, int, int], seed: int = 0) -> PixelCNNPlusPlus:
    """In float64, so that equal means equal to ten digits."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return PixelCNNPlusPlus(PixelCNNPlusPlusConfig(shape=shape, **SMALL)).double()


@pytest.fixture(scope="module")
def colour() -> PixelCNNPlusPlus:
    return network((3, 8, 8))


def images(model: PixelCNNPlusPlus, count: int) -> Tensor:
    return torch.rand(count, *model.config.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_no_pixel_sees_itself_or_a_later_one(colour: PixelCNNPlusPlus) -> None:
    """By gradients at every position of the image, which also show that there is no blind spot."""
    x = images(colour, 1).requires_grad_()
    parameters = colour(x)
    assert parameters.shape == (1, mixture_parameter_count(3, 3), 8, 8)
    for position in range(64):
        (gradient,) = torch.autograd.grad(parameters[0, :, position // 8, position % 8].square().sum(), x, retain_graph=True)
        sizes = gradient[0].abs().amin(0).flatten()
        assert (gradient[0].flatten(1)[:, position:] == 0).all(), f"position {position} looks ahead"
        assert (sizes[:position] > 0).all(), f"position {position} has a blind spot"


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 4, 12)])
def test_sampling_computes_what_the_whole_network_would(shape: tuple[int, int, int]) -> None:
    """Every pixel is sampled from the mixture that the full pass gives for the finished image."""
    model, seen = network(shape), []
    hook = model.head.register_forward_hook(lambda module, inputs, output: seen.append(output[:, :, 0, 0]))
    x = model.sample(3, seed=1)
    hook.remove()
    assert x.shape == (3, *shape)
    assert 0 <= x.min() < x.max() <= 1
    torch.testing.assert_close(x * 255, (x * 255).round())
    with torch.no_grad():
        whole = model(x).flatten(2)
    assert len(seen) == shape[1] * shape[2]
    torch.testing.assert_close(torch.stack(seen, 2), whole, atol=1e-10, rtol=0)


def test_a_row_is_sampled_by_its_seed_and_number(colour: PixelCNNPlusPlus) -> None:
    x = colour.sample(3, seed=1)
    assert torch.equal(colour.sample(3, seed=1), x)
    torch.testing.assert_close(colour.sample(1, seed=1), x[:1])
    assert (colour.sample(3, seed=2) != x).any()
    assert (x[0] != x[1]).any()


def test_the_published_size() -> None:
    """Salimans et al. name 160 filters, three stages of five blocks, ten mixtures; that makes about 53 million weights."""
    config = PixelCNNPlusPlusConfig(shape=(3, 32, 32))
    assert (config.width, config.blocks, config.stages, config.mixtures) == (160, 5, 3, 10)
    with torch.device("meta"):
        model = PixelCNNPlusPlus(config)
        assert model(torch.empty(2, 3, 32, 32)).shape == (2, 100, 32, 32)
    assert sum(p.numel() for p in model.parameters()) == 53_618_660
    counts = []
    stage = model.pixel_stream
    while stage is not None:
        counts.append((len(stage.down_blocks), len(stage.up_blocks)))
        stage = stage.inner_stage
    assert counts == [(5, 6), (5, 6), (5, 5)]


def test_sides_that_do_not_halve_are_refused() -> None:
    with pytest.raises(UserError, match="sides that 4 divides"):
        PixelCNNPlusPlusConfig(shape=(1, 30, 28))
    with pytest.raises(UserError, match="at least 1"):
        PixelCNNPlusPlusConfig(shape=(1, 28, 28), blocks=0)
