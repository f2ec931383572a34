from __future__ import annotations

from typing import Any

import pytest
import torch

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import VQVAE, AutoencoderConfig
from anytime.core.errors import UserError
from anytime.model import AnytimeModel

GOOD: dict[str, Any] = {
    "shape": (1, 12, 12),
    "length": 5,
    "dim": 9,
    "quantizer": QuantizerConfig(codebook_size=4),
    "widths": (4, 6),
    "kernels": (4, 4, 3),
    "strides": (2, 2, 1),
}


def test_spatial_shape_and_channels() -> None:
    config = AutoencoderConfig(**GOOD)
    assert (config.spatial_shape, config.channels, config.decoded_size) == ((3, 3), 5, (12, 12))
    spatial = AutoencoderConfig(**GOOD | {"layout": "spatial", "length": 9, "dim": 5})
    assert (spatial.spatial_shape, spatial.channels) == ((3, 3), 5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"widths": (4,)}, "widths"),
        ({"kernels": (4, 4)}, "kernels"),
        ({"strides": (2, 2, 1, 1)}, "strides"),
        ({"dim": 8}, "is 5 × 9, not 5 × 8"),
        ({"layout": "spatial"}, "spatial-wise code on this network is 9 ×"),
        ({"shape": (1, 13, 12)}, "13, 12"),
        ({"blocks": -1}, "`autoencoder.blocks` must be at least 0, not -1"),
    ],
)
def test_shapes_that_do_not_agree_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        AutoencoderConfig(**GOOD | change)


def test_a_reconstruction_depends_on_kept_codes_only(tiny: AnytimeModel) -> None:
    autoencoder: VQVAE = tiny.autoencoder
    x = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = autoencoder(x, torch.tensor([0, 3, 8]))
    torch.testing.assert_close(out.latents, autoencoder.latents(x))
    assert torch.equal(out.quantized.codes, autoencoder.encode(x))
    for row, keep in enumerate((0, 3, 8)):
        expected = autoencoder.decode(out.quantized.codes[row : row + 1, :keep])
        torch.testing.assert_close(out.x[row : row + 1], expected, atol=1e-5, rtol=1e-5)
