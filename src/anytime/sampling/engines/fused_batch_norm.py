"""A decoder in an engine's precision: batch norms fused into the convolutions, channels last.

Audio feature maps become images one pixel high, as channels-last kernels need two spatial dimensions.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.layout import to_features
from anytime.autoencoders.vqvae import VQVAE


def fuse_batch_norm(layers: nn.Sequential) -> nn.Sequential:
    """Fuse every batch norm into the transposed convolution before it."""
    out: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            before = out.pop()
            assert isinstance(before, nn.ConvTranspose2d)
            out.append(_fuse(before, layer))
        else:
            out.append(layer)
    return nn.Sequential(*out)


def _fuse(convolution: nn.ConvTranspose2d, norm: nn.BatchNorm2d) -> nn.ConvTranspose2d:
    """γ (Wx + b − μ) / σ + β = (γ/σ) W x + (b − μ) γ/σ + β"""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    shift = norm.bias - norm.running_mean * scale
    c = convolution
    size, stride, padding = (tuple(map(int, v)) for v in (c.kernel_size, c.stride, c.padding))
    fused = nn.ConvTranspose2d(c.in_channels, c.out_channels, size, stride, padding, device=c.weight.device)  # type: ignore[arg-type]
    fused.weight.data = c.weight.detach() * scale.detach()[:, None, None]  # [in, out, height, width]
    assert fused.bias is not None
    fused.bias.data = (shift + c.bias * scale if c.bias is not None else shift).detach()
    return fused


def conv1d_to_conv2d(layer: nn.Module) -> nn.Module:
    """Replace 1D convolutions by 2D ones on images one pixel high."""
    if isinstance(layer, nn.Unflatten):  # of a dense layer's outputs
        channels, time = layer.unflattened_size
        return nn.Unflatten(1, (int(channels), 1, int(time)))
    if not isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
        for name, child in layer.named_children():
            setattr(layer, name, conv1d_to_conv2d(child))
        return layer
    new: nn.Conv2d | nn.ConvTranspose2d
    width, stride, padding = (int(v[0]) for v in (layer.kernel_size, layer.stride, layer.padding))
    shape = (layer.in_channels, layer.out_channels, (1, width), (1, stride), (0, padding))
    if isinstance(layer, nn.Conv1d):
        new = nn.Conv2d(*shape, dilation=(1, layer.dilation[0]))
    else:
        new = nn.ConvTranspose2d(*shape, output_padding=(0, layer.output_padding[0]))
    new.weight.data, new.bias = layer.weight.detach()[:, :, None], layer.bias
    return new


class FusedBatchNormDecoder:
    """Copy of an autoencoder's decoder with fused batch norms, in another precision."""

    def __init__(self, autoencoder: VQVAE, dtype: torch.dtype) -> None:
        self.config = autoencoder.config
        codebook = autoencoder.quantizer.codebook.detach()
        self.missing_code = len(codebook)
        zero = codebook.new_zeros(1, self.config.dim)  # the latent of a missing code
        self.codebook = torch.cat([codebook, zero]).to(dtype)
        self.layers = fuse_batch_norm(copy.deepcopy(autoencoder.decoder)).to(dtype).eval()
        if self.config.is_audio:
            conv1d_to_conv2d(self.layers)
        self.layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.no_grad()
    def __call__(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *spatial"]:
        rows, prefix_length = codes.shape
        padded = nn.functional.pad(codes, (0, self.config.length - prefix_length), value=self.missing_code)
        return self._decode_into(padded, self._empty_output(rows))

    def _empty_output(self, rows: int) -> Float[Tensor, "batch channel *spatial"]:
        return torch.empty(rows, *self.config.shape, dtype=torch.float32, device=self.codebook.device)

    def _decode_into(self, codes: Int[Tensor, "batch length"], out: Float[Tensor, "batch channel *spatial"]) -> Tensor:
        """Decode into `out` and return it."""
        features = self._features(codes)
        if self.config.is_audio:
            features = features[:, :, None]
        return out.copy_(self.layers(features.to(memory_format=torch.channels_last)).view_as(out))

    def _features(self, codes: Int[Tensor, "batch length"]) -> Float[Tensor, "batch width *spatial"]:
        return to_features(self.codebook[codes], self.config.layout, self.config.spatial_shape)
