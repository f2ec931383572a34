"""Engines' decoders equal the model's decoder. Tests that need a GPU are in test_cuda.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anytime.autoencoders.layout import to_features
from anytime.autoencoders.networks.residual_image import ImageResidualBlock
from anytime.autoencoders.vqvae import VQVAE
from anytime.model import load
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.sampling.engines.fused_batch_norm import FusedBatchNormDecoder, fuse_batch_norm
from anytime.sampling.engines.packed_decoder import PackedConv, PackedConvTranspose, PackedDecoder, PackedUpsampling
from anytime.sampling.engines.packed_linear import has_onednn
from anytime.sampling.kernels.fused_decoder import FusedConv, fuse_decoder, tile_shape

TOLERANCE = 1e-5
SHARED = 227 * 1024  # bytes of shared memory per program on an H200
FUNCTIONS = {"relu": torch.relu, "silu": torch.nn.functional.silu, "sigmoid": torch.sigmoid}


def autoencoder_of(name: str, shape: tuple[int, ...], which: str) -> VQVAE:
    torch.manual_seed(0)
    autoencoder = VQVAE(with_scale(preset(name, which, shape), "smoke").model.autoencoder).eval()  # type: ignore[arg-type]
    for weights in autoencoder.decoder.parameters():
        weights.data.normal_(std=0.2)  # blocks are initialised as the identity, and biases as 0
    for statistic in autoencoder.decoder.buffers():
        if statistic.is_floating_point():  # of batch norms, which are initialised as the identity too
            statistic.uniform_(0.5, 1.5)
    torch.nn.init.normal_(autoencoder.quantizer.codebook)
    return autoencoder


@pytest.mark.parametrize("decoder", [FusedBatchNormDecoder, PackedDecoder])
@pytest.mark.parametrize("which", ["paper", "best", "original"])
@pytest.mark.parametrize(("name", "shape"), [("mnist", (1, 28, 28)), ("cifar10", (3, 32, 32)), ("audiomnist", (1, 15_360))])
@torch.no_grad()
def test_it_decodes_as_the_autoencoder_does(
    name: str, shape: tuple[int, ...], which: str, decoder: type[FusedBatchNormDecoder]
) -> None:
    if which == "original" and name == "audiomnist":
        pytest.skip("there is no such recipe")
    autoencoder = autoencoder_of(name, shape, which)
    decode = decoder(autoencoder, torch.float32)
    for rows in (1, 9):
        codes = torch.randint(len(autoencoder.quantizer.codebook), (rows, autoencoder.length - 1))
        x = decode(codes)
        assert x.shape == (rows, *shape)
        assert rows == 1 or x.std(0).mean() > 100 * TOLERANCE, "codes matter"
        torch.testing.assert_close(x, autoencoder.decode(codes), atol=TOLERANCE, rtol=0)


@pytest.mark.skipif(not has_onednn(), reason="this torch cannot pack weights")
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
@torch.no_grad()
def test_the_packed_decoder_of_a_bundled_model(name: str) -> None:
    """All convolutions are packed, and codes of real images are decoded as the model does."""
    model = load(name, "cpu", "eager")
    packed = PackedDecoder(model.autoencoder, torch.float32)
    convolutions = [layer for layer in model.autoencoder.decoder.modules() if "Conv" in type(layer).__name__]
    kinds = [type(layer) for layer in packed.layers.modules()]
    assert not any(issubclass(kind, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for kind in kinds)
    found = kinds.count(PackedConv) + kinds.count(PackedConvTranspose)
    assert found == len(convolutions) and kinds.count(PackedUpsampling) == 1  # it holds a PackedConv
    sample = model.sample(9, seed=0)
    torch.testing.assert_close(packed(sample.codes), sample.data, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(packed(sample.codes[:1, :3]), model.decode(sample.codes[:1, :3]), atol=TOLERANCE, rtol=0)


@pytest.mark.skipif(not has_onednn(), reason="this torch cannot pack weights")
@pytest.mark.parametrize(("channels", "outputs", "size"), [(7, 1, (3, 5)), (16, 3, (4, 4)), (5, 15, (1, 2))])
@torch.no_grad()
def test_upsampling_as_a_convolution_over_windows(channels: int, outputs: int, size: tuple[int, int]) -> None:
    layer = torch.nn.ConvTranspose2d(channels, outputs, 4, 2, 1)
    for rows in (1, 6):
        x = torch.randn(rows, channels, *size).to(memory_format=torch.channels_last)
        torch.testing.assert_close(PackedUpsampling(layer)(x), layer(x), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("name", "shape", "which", "count"),
    [
        ("cifar10", (3, 32, 32), "paper", 4),
        ("cifar10", (3, 32, 32), "best", 16),  # four convolutions, and two blocks of two after all but the last
        ("mnist", (1, 28, 28), "best", 7),
    ],
)
@torch.no_grad()
def test_fused_convs_compute_what_the_layers_do(name: str, shape: tuple[int, ...], which: str, count: int) -> None:
    autoencoder = autoencoder_of(name, shape, which)
    config = autoencoder.config
    codes = torch.randint(len(autoencoder.quantizer.codebook), (3, autoencoder.length))
    x = to_features(autoencoder.quantizer.codebook[codes], config.layout, config.spatial_shape).permute(0, 2, 3, 1)
    fused_convs = fuse_decoder(fuse_batch_norm(autoencoder.decoder))
    assert fused_convs is not None and len(fused_convs) == count
    residual: Tensor | None = None
    for fused_conv in fused_convs:
        total = by_taps(fused_conv, x) + fused_conv.bias[: len(fused_conv.bias) // fused_conv.shuffle**2]
        if fused_conv.adds_residual:
            assert residual is not None
            total = total + residual
        residual = total if fused_conv.stores_residual else residual
        x = FUNCTIONS[fused_conv.activation](total)
    torch.testing.assert_close(x.permute(0, 3, 1, 2), autoencoder.decode(codes), atol=TOLERANCE, rtol=0)


def by_taps(fused_conv: FusedConv, x: Tensor) -> Tensor:
    """Compute a `FusedConv` tap by tap: row stride·i + p sums over t the taps [p, t] of row i + (p + padding) // stride − t."""
    (batch, height, width, _), (_, taps, _, _, out_channels) = x.shape, fused_conv.taps.shape
    out = torch.zeros(batch, height * fused_conv.stride, width * fused_conv.stride, out_channels)
    around = torch.nn.functional.pad(x, (0, 0, *(taps,) * 4))
    for p in range(fused_conv.stride):
        for q in range(fused_conv.stride):
            for t in range(taps):
                for u in range(taps):
                    i, j = (taps + (r + fused_conv.padding) // fused_conv.stride - v for r, v in ((p, t), (q, u)))
                    part = around[:, i : i + height, j : j + width] @ fused_conv.taps[p * fused_conv.stride + q, t, u]
                    out[:, p :: fused_conv.stride, q :: fused_conv.stride] += part
    if fused_conv.shuffle == 1:
        return out
    wide = out.unflatten(3, (fused_conv.shuffle, fused_conv.shuffle, -1)).permute(0, 1, 3, 2, 4, 5)
    return wide.flatten(3, 4).flatten(1, 2)


def test_unfusable_decoders() -> None:
    """They run layer by layer."""
    convolution, relu = torch.nn.Conv2d(2, 2, 3, padding=1), torch.nn.ReLU()
    for layers in (
        [convolution],
        [relu, convolution, relu],
        [convolution, relu, relu],
        [convolution, torch.nn.Tanh()],
        [ImageResidualBlock(2), relu],
        [convolution, relu, ImageResidualBlock(2), relu],
        [convolution, ImageResidualBlock(2)],
        [convolution, ImageResidualBlock(2), relu],  # the residual does not have the image's layout
        [torch.nn.Conv2d(2, 2, 4, stride=2, padding=1), relu],
        [torch.nn.Conv2d(2, 2, 3), relu],
        [torch.nn.Conv2d(2, 2, 4, padding=1), relu],
        [torch.nn.Conv2d(2, 2, (3, 5), padding=(1, 2)), relu],
        [torch.nn.Conv2d(2, 2, 3, padding=1, bias=False), relu],
        [torch.nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1), relu],
        [torch.nn.ConvTranspose2d(2, 2, 4, stride=2, padding=1, output_padding=1), relu],
        [torch.nn.Conv2d(2, 2, 3, padding=2, dilation=2), relu],
        [torch.nn.Conv2d(2, 2, 3, padding=1, groups=2), relu],
    ):
        assert fuse_decoder(torch.nn.Sequential(*layers)) is None, layers
    found = fuse_decoder(
        torch.nn.Sequential(convolution, ImageResidualBlock(2), torch.nn.SiLU(), convolution, torch.nn.Sigmoid())
    )
    assert found is not None
    assert [(conv.activation, conv.adds_residual, conv.stores_residual) for conv in found] == [
        ("silu", False, True), ("silu", False, False), ("silu", True, False), ("sigmoid", False, False),
    ]  # fmt: skip


@pytest.mark.parametrize("channels", [1, 16, 28, 64, 100, 256, 1024])
def test_a_tile_fits_a_processor_at_every_width(channels: int) -> None:
    for pixels in (1, 49, 5_000, 1_000_000):
        for out_channels in (1, 3, 17, 64, 512):
            tile = tile_shape(pixels, channels, out_channels, 2)
            assert 2 * tile["num_stages"] * (tile["M"] + tile["N"]) * tile["K"] <= SHARED, (pixels, out_channels, tile)
            assert min(tile["M"], tile["N"], tile["K"]) >= 16, "the smallest product"
