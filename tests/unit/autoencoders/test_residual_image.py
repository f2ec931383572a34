from __future__ import annotations

import pytest
import torch

from anytime.autoencoders.vqvae import VQVAE
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.sampling.engines.fused_batch_norm import fuse_batch_norm


@pytest.mark.parametrize(("shape", "length"), [((1, 28, 28), 16), ((3, 32, 32), 20), ((3, 64, 64), 40)])
def test_shapes_at_our_code_budget(shape: tuple[int, int, int], length: int) -> None:
    config = with_scale(preset("x", "best", shape), "smoke").model.autoencoder
    model = VQVAE(config)
    x = torch.rand(2, *shape)
    assert model.encode(x).shape == (2, length)
    assert model(x, torch.tensor([1, length])).x.shape == x.shape
    assert config.length == preset("x", "best", shape).model.autoencoder.length == length


def test_blocks_start_as_the_identity() -> None:
    from anytime.autoencoders.networks.residual_image import ImageResidualBlock

    x = torch.randn(2, 8, 5, 5)
    assert torch.equal(ImageResidualBlock(8)(x), x)


def test_batch_norms_are_fused() -> None:
    torch.manual_seed(0)
    config = with_scale(preset("x", "best", (3, 32, 32)), "smoke").model.autoencoder
    decoder, features = VQVAE(config).decoder, torch.randn(4, config.length, 4, 4)
    for _ in range(3):
        decoder(features)  # updates the norms
    decoder.eval()
    merged = fuse_batch_norm(decoder)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in merged.modules())
    torch.testing.assert_close(merged(features), decoder(features), atol=1e-5, rtol=0)
