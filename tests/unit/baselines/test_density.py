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
from anytime.baselines.density import DensityConfig, DensityModel, Space, dequantized, held_out_bits_per_dim, load_density
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


def test_pixels_share_one_centre_and_one_spread(images: Tensor) -> None:
    """The background is the same number at every position."""
    model = made("pixels", images)
    values = model.to_values(dequantized(torch.zeros_like(images[:1]), torch.full((1, 48), 0.5))) / model.prior.scale
    assert values.unique().numel() == 1
    expected = (images.double().var(unbiased=False) + 1 / 12).sqrt()
    assert model.prior.scale.unique().numel() == 1
    assert float(model.prior.scale[0]) == pytest.approx(float(expected), rel=1e-4)


def test_positions_start_by_row_and_column_in_pixels_and_by_rank_in_components(images: Tensor) -> None:
    pixels, components = (made(space, images).prior.positions.weight for space in ("pixels", "pca"))
    below = pixels.unflatten(0, (4, 4, 3))
    assert torch.equal(below[0, 0] - below[0, 1], below[2, 0] - below[2, 1]), "a step along a row is alike in every row"
    assert not torch.equal(pixels, components)


def sparse_images(count: int, seed: int) -> Tensor:
    """Four fifths of the pixels are 0, the rest any other level, independently: MNIST's background, without its digits."""
    generator = torch.Generator().manual_seed(seed)
    ink = torch.randint(1, 256, (count, 1, 4, 4), generator=generator)
    return torch.where(torch.rand(count, 1, 4, 4, generator=generator) < 0.2, ink, 0).to(torch.uint8)


def test_bits_of_sparse_pixels_come_near_their_entropy() -> None:
    torch.manual_seed(0)
    train, held_out = sparse_images(2000, 0), sparse_images(1000, 1)
    prior = ContinuousConfig(length=16, layers=1, width=32, hidden=32, heads=2, dropout=0.0)
    model = DensityModel(DensityConfig(name="sparse", shape=(1, 4, 4), space="pixels", prior=prior))
    model.fit_space(train)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    steps = 200
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * (1 - step / steps)
        uniforms = torch.rand(100, 16, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model.bits_per_dim(train[torch.randperm(2000)[:100]], uniforms).mean().backward()
        optimizer.step()
    entropy = -0.8 * math.log2(0.8) - 0.2 * math.log2(0.2 / 255)
    bits = held_out_bits_per_dim(model.eval(), held_out)
    assert entropy - 0.05 < bits < entropy + 0.2, "below the entropy it would not be a density of these pixels"


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
