"""A decoder whose convolutions have weights packed once for the processor, in fp32 or bf16."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling.engines.fused_batch_norm import FusedBatchNormDecoder
from anytime.sampling.engines.packed_linear import has_onednn

FEW_CHANNELS = 16
"""A vector of float32. oneDNN's transposed convolution leaves it almost empty if there are fewer output channels."""


class PackedDecoder(FusedBatchNormDecoder):
    """The decoder with fused batch norms and packed convolutions."""

    def __init__(self, autoencoder: VQVAE, dtype: torch.dtype) -> None:
        super().__init__(autoencoder, dtype)
        if has_onednn() and not self.config.is_audio:  # the format for images 1 pixel high depends on the number of rows
            _pack(self.layers)


def _pack(layers: nn.Module) -> None:
    """Replace convolutions by packed ones, and let activations overwrite the outputs of the layers before them."""
    for index, (name, layer) in enumerate(layers.named_children()):
        if isinstance(layer, nn.ConvTranspose2d):
            setattr(layers, name, PackedUpsampling(layer) if _is_small_upsampling(layer) else PackedConvTranspose(layer))
        elif isinstance(layer, nn.Conv2d):
            setattr(layers, name, PackedConv(layer.weight, layer.bias, *_geometry(layer)))
        elif isinstance(layer, nn.ReLU | nn.LeakyReLU | nn.SiLU):
            layer.inplace = index > 0  # the first of a residual block reads what the block adds to
        else:
            _pack(layer)


def _geometry(layer: nn.Conv2d) -> tuple[Any, ...]:
    return layer.padding, layer.stride, layer.dilation, layer.groups


def _is_small_upsampling(layer: nn.ConvTranspose2d) -> bool:
    geometry = (layer.kernel_size, layer.stride, layer.padding, layer.output_padding)
    return layer.out_channels < FEW_CHANNELS and geometry == ((4, 4), (2, 2), (1, 1), (0, 0))


class PackedConv(nn.Module):
    """A convolution; `geometry` is its padding, stride, dilation and number of groups."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *geometry: Any) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_convolution_weight(weight.detach(), *geometry)
        self.bias, self.geometry = None if bias is None else bias.detach(), geometry

    def forward(self, x: Float[Tensor, "batch in height width"]) -> Float[Tensor, "batch out tall wide"]:
        """Convolve."""
        y: Tensor = torch.ops.mkldnn._convolution_pointwise(x, self.weight, self.bias, *self.geometry, "none", [], "")
        return y


class PackedConvTranspose(nn.Module):
    """A transposed convolution. Its activation is not fused: for some shapes oneDNN then takes four times as long."""

    def __init__(self, layer: nn.ConvTranspose2d) -> None:
        super().__init__()
        self.geometry = layer.padding, layer.output_padding, layer.stride, layer.dilation, layer.groups
        self.weight = torch.ops.mkldnn._reorder_convolution_transpose_weight(layer.weight.detach(), *self.geometry)
        self.bias = None if layer.bias is None else layer.bias.detach()

    def forward(self, x: Float[Tensor, "batch in height width"]) -> Float[Tensor, "batch out tall wide"]:
        """Convolve."""
        convolve = torch.ops.mkldnn._convolution_transpose_pointwise
        y: Tensor = convolve(x, self.weight, self.bias, *self.geometry, "none", [], "")
        return y


class PackedUpsampling(nn.Module):
    """A transposed convolution of kernel 4, stride 2, padding 1 as a convolution over windows of 2 × 2 inputs.

    The windows that end at row i determine the output rows 2i − 1 and 2i, columns likewise: four times the channels, then a
    pixel shuffle. The outermost rows and columns are cut off.
    """

    def __init__(self, layer: nn.ConvTranspose2d) -> None:
        super().__init__()
        taps = torch.tensor([[2, 0], [3, 1]], device="cpu")  # of output row 2i − 1 and 2i, for input rows i − 1 and i
        weight = layer.weight.detach()[:, :, taps][..., taps]  # [in, out, tall, height, wide, width]
        self.channels = layer.out_channels
        bias = None if layer.bias is None else layer.bias.detach().repeat_interleave(4)
        self.windows = PackedConv(weight.permute(1, 2, 4, 0, 3, 5).flatten(0, 2), bias, (1, 1), (1, 1), (1, 1), 1)

    def forward(self, x: Float[Tensor, "batch in height width"]) -> Float[Tensor, "batch out tall wide"]:
        """Convolve."""
        return nn.functional.pixel_shuffle(self.windows(x), 2)[:, :, 1:-1, 1:-1]
