from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from anytime import load
from anytime.baselines.continuous_transformer import ContinuousConfig
from anytime.baselines.density import DensityConfig, DensityModel, Space, dequantized, load_density
from anytime.core.errors import UserError
from anytime.data.synthetic import synthetic_images
from anytime.model import AnytimeModel

SHAPE = (3, 4, 4)
PRIOR = ContinuousConfig(length=48, layers=1, width=16, hidden=16, heads=2, mixtures=3)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return synthetic_images("strokes", SHAPE, count=300).train


def made(space: Space, images: Tensor) -> DensityModel:
    torch.manual_seed(0)
    model = DensityModel(DensityConfig(name="strokes", shape=SHAPE, space=space, prior=PRIOR)).eval()
    model.fit_space(images)
    return model


def noise(count: int) -> Tensor:
    return torch.rand(count, 48, generator=torch.Generator().manual_seed(0))


def test_dequantised_pixels_keep_their_level_and_raster_order(images: Tensor) -> None:
    y = dequantized(images[:5], noise(5))
    assert torch.equal(y.floor()[:, :3], images[:5, :, 0, 0].float()), "the channels of the first pixel"
    assert torch.equal(y.floor()[:, 3:6], images[:5, :, 0, 1].float()), "then its right neighbour's"


@pytest.mark.parametrize("space", ["pixels", "pca"])
def test_bytes_survive_the_way_there_and_back(space: Space, images: Tensor) -> None:
    model = made(space, images)
    middle = torch.full((300, 48), 0.5)  # rounding of the turn must not carry a number over the edge of its level
    assert torch.equal(model.to_pixels(model.to_values(dequantized(images, middle))), images)


def test_the_turn_keeps_volume(images: Tensor) -> None:
    """Orthogonal, so the log-determinant of the change of variables is zero: nothing is to be corrected."""
    turn = made("pca", images).turn.double()
    torch.testing.assert_close(turn.T @ turn, torch.eye(48, dtype=torch.float64), atol=1e-5, rtol=0)
    assert float(torch.linalg.slogdet(turn).logabsdet) == pytest.approx(0, abs=1e-4)


def test_change_of_variables_needs_no_correction(images: Tensor) -> None:
    """A Gaussian's density, in pixels and in its principal axes, is the same number."""
    model = made("pca", images)
    y = dequantized(images[:50], noise(50)).double()
    centre, turn = model.centre.double(), model.turn.double()
    values = model.to_values(y.float()).double()
    variances = torch.linspace(1, 9, 48, dtype=torch.float64)
    covariance = turn @ torch.diag(variances) @ turn.T
    covariance = (covariance + covariance.T) / 2
    in_pixels = torch.distributions.MultivariateNormal(centre, covariance).log_prob(y)
    in_axes = torch.distributions.Normal(torch.zeros(48).double(), variances.sqrt()).log_prob(values).sum(1)
    torch.testing.assert_close(in_pixels, in_axes, rtol=1e-3, atol=1e-2)


def test_components_come_in_order_and_are_standardised(images: Tensor) -> None:
    model = made("pca", images)
    scale = model.prior.scale
    assert (scale.diff() <= 1e-3).all()
    assert float(scale.min()) >= math.sqrt(1 / 12) - 1e-3, "the noise alone"
    values = model.to_values(dequantized(images, noise(300)))
    torch.testing.assert_close(values.std(0) / scale, torch.ones(48), atol=0.2, rtol=0)
    assert float((values.mean(0) / scale).abs().max()) < 0.2


def test_in_pixels_the_spread_is_each_pixels_own(images: Tensor) -> None:
    model = made("pixels", images)
    flat = images.permute(0, 2, 3, 1).flatten(1).double()
    expected = (flat.var(0, unbiased=False) + 1 / 12).sqrt().float()
    torch.testing.assert_close(model.prior.scale, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("space", ["pixels", "pca"])
def test_samples_are_images(space: Space, images: Tensor) -> None:
    x = made(space, images).sample(3, seed=1)
    assert x.shape == (3, *SHAPE)
    assert x.dtype == torch.uint8


@pytest.mark.parametrize("space", ["pixels", "pca"])
@torch.no_grad()
def test_saved_and_loaded_is_the_same(space: Space, images: Tensor, tmp_path: Path) -> None:
    model = made(space, images)
    again = load_density(model.save(tmp_path / "a"))
    assert again.config == model.config
    assert torch.equal(again.bits_per_dim(images[:4], noise(4)), model.bits_per_dim(images[:4], noise(4)))
    assert torch.equal(again.sample(2, seed=3), model.sample(2, seed=3))
    files = [(again.save(tmp_path / "b") / "model.safetensors"), tmp_path / "a" / "model.safetensors"]
    assert files[0].read_bytes() == files[1].read_bytes()
    with pytest.raises(UserError, match="is a density model and has no codes to sample"):
        load(tmp_path / "a")


def test_folders_that_hold_none(tiny: AnytimeModel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="another kind of model than density"):
        load_density(copy.deepcopy(tiny).save(tmp_path))


def test_a_length_that_does_not_fit_the_data() -> None:
    with pytest.raises(UserError, match=r"47 numbers, data of shape .* has 48"):
        DensityConfig(name="x", shape=SHAPE, space="pca", prior=replace(PRIOR, length=47))
