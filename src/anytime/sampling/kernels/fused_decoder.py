"""The fused image decoder: each convolution with its bias, residual and activation is one kernel.

cuDNN has a kernel for each of them, and at a hundred rows launching them takes as long as running them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.networks.residual_image import ImageResidualBlock
from anytime.sampling.engines.cuda_step import ceil_div, power_of_two

Activation = Literal["relu", "silu", "sigmoid"]
ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid"}
NARROW_TILE = 16
"""Channels of the narrowest tile."""
SMALL_TILE = 16
"""Pixels of a program if there are few: bound by latency, it starts before the previous kernel ends."""
BLOCK_POSITIONS = 16
"""Positions of the feature map that a program looks up at once."""
MIN_PROGRAMS = 64
"""Number of large tiles that keeps a GPU busy; with fewer, small tiles are faster."""
PDL = True
"""Programmatic dependent launch; Triton's interpreter, used in tests, does not support it."""


@dataclass(frozen=True, slots=True)
class FusedConv:
    """x -> ρ(Wx + bias + residual), where the input of ρ may be stored as the next residual.

    W is a transposed convolution that enlarges the map by `stride`. Each of the stride² output pixels of an input pixel has its
    own taps: those of output row stride·i + p read the input rows i + (p + padding) // stride − t, t = 0, 1, ...
    If the last convolution has few channels, these pixels are computed together, as channels (p, q, channel) of a map that is
    not enlarged. Its stride is then 1, and `shuffle` is the original stride (pixel shuffle).
    """

    taps: Float[Tensor, "pixel tap tap in out"]
    bias: Float[Tensor, " out"]
    stride: int
    padding: int
    activation: Activation
    adds_residual: bool
    stores_residual: bool
    shuffle: int = 1


class NotFusableError(Exception):
    """A layer cannot be fused."""


def fuse_decoder(layers: nn.Sequential) -> list[FusedConv] | None:
    """Return the fused convolutions of a decoder with fused batch norms, or None if it cannot be fused."""
    try:
        fused_convs = list(_fused_convs(list(layers)))
    except NotFusableError:
        return None
    *body, last = fused_convs
    # The last one writes channels first, and a residual has them last.
    return None if last.adds_residual else [*body, _as_pixel_shuffle(last)]


def _fused_convs(layers: list[nn.Module]) -> Iterator[FusedConv]:
    """Fuse each convolution with the activation after it, or with the first one of a residual block x + W₂ ρ(W₁ ρ(x)).

    In the second case the convolution stores x, which the block adds.
    """
    stored = skip = False  # whether the previous layer stored x, and whether it included this one
    for layer, next_layer in zip_longest(layers, layers[1:]):
        if skip:
            skip = False
            continue
        stores_residual = isinstance(next_layer, ImageResidualBlock)
        if isinstance(layer, ImageResidualBlock) and stored:
            _, first, between, second = layer.block
            yield _fused_conv(first, between, adds_residual=False, stores_residual=False)
            yield _fused_conv(second, next_layer, adds_residual=True, stores_residual=stores_residual)
        else:
            yield _fused_conv(layer, next_layer, adds_residual=False, stores_residual=stores_residual)
        stored, skip = stores_residual, not stores_residual


def _fused_conv(layer: nn.Module, next_layer: nn.Module | None, *, adds_residual: bool, stores_residual: bool) -> FusedConv:
    if not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        raise NotFusableError
    kernel, stride, padding = layer.kernel_size[0], layer.stride[0], (layer.kernel_size[0] - layer.stride[0]) // 2
    standard = type(layer)(layer.in_channels, layer.out_channels, kernel, stride, padding, device="meta")
    fits = kernel % stride == (kernel - stride) % 2 == 0 and (stride == 1 or isinstance(layer, nn.ConvTranspose2d))
    if not fits or str(layer) != str(standard):  # differs in groups, dilation, padding or bias
        raise NotFusableError
    weight = layer.weight.detach()  # [in, out, height, width]
    if isinstance(layer, nn.Conv2d):  # as a transposed convolution
        weight = weight.transpose(0, 1).flip(2, 3)
    first = [(pixel + padding) % stride for pixel in range(stride)]
    taps = torch.stack([weight[:, :, y::stride, x::stride] for y in first for x in first]).permute(0, 3, 4, 1, 2).contiguous()
    assert layer.bias is not None
    return FusedConv(
        taps, layer.bias.detach().float(), stride, padding, _activation(next_layer), adds_residual, stores_residual
    )


def _as_pixel_shuffle(fused_conv: FusedConv) -> FusedConv:
    """Return an equal convolution that computes all stride² output pixels as channels, if they are few."""
    stride, (_, count, _, channels, out_channels) = fused_conv.stride, fused_conv.taps.shape
    if stride == 1 or stride**2 * out_channels > NARROW_TILE:
        return fused_conv
    first = [(pixel + fused_conv.padding) // stride for pixel in range(stride)]
    merged = fused_conv.taps.new_zeros(1, *(first[-1] - first[0] + count,) * 2, channels, stride, stride, out_channels)
    for p in range(stride):
        for q in range(stride):
            y, x = first[-1] - first[p], first[-1] - first[q]
            merged[0, y : y + count, x : x + count, :, p, q] = fused_conv.taps[p * stride + q]
    bias = fused_conv.bias.repeat(stride**2)
    return replace(fused_conv, taps=merged.flatten(4), bias=bias, stride=1, padding=first[-1], shuffle=stride)


def _activation(layer: nn.Module | None) -> Activation:
    """Return the activation: the layer itself, or the first one of a residual block."""
    activation = layer.block[0] if isinstance(layer, ImageResidualBlock) else layer
    for kind, name in ACTIVATIONS.items():
        if isinstance(activation, kind):
            return name
    raise NotFusableError


def features(
    codes: Int[Tensor, "batch length"], codebook: Float[Tensor, "entry dim"], height: int
) -> Float[Tensor, "batch height width length"]:
    """Return the channel-wise feature map of the codes, channels last."""
    from anytime.sampling.kernels import triton_kernels

    (batch, length), dim = codes.shape, codebook.shape[1]
    x = codebook.new_empty(batch, height, dim // height, length)
    triton_kernels.gather_codes[batch, ceil_div(dim, BLOCK_POSITIONS)](
        codes, codebook, x, length, dim, LENGTH=power_of_two(length), BLOCK_POSITIONS=BLOCK_POSITIONS
    )
    return x


def run(
    fused_convs: Sequence[FusedConv],
    x: Float[Tensor, "batch height width latent"],
    out: Float[Tensor, "batch channel high wide"],
) -> None:
    """Run the convolutions, one kernel each; the last one writes `out`, channels first."""
    from anytime.sampling.kernels import triton_kernels

    residual: Tensor | None = None
    for conv in fused_convs:
        batch, height, width, channels = x.shape
        pixels, out_channels = batch * height * width, conv.taps.shape[-1]
        if conv is fused_convs[-1]:
            y = out.permute(0, 2, 3, 1)
        else:
            y = x.new_empty(batch, height * conv.stride, width * conv.stride, out_channels)
        total = torch.empty_like(y) if conv.stores_residual else y  # y is not written as `total` then
        tile = tile_shape(pixels, channels, out_channels, conv.stride)
        use_pdl = PDL and tile["M"] <= SMALL_TILE
        triton_kernels.convolve[ceil_div(pixels, tile["M"]), ceil_div(out_channels, tile["N"]), conv.stride**2](
            x, conv.taps, conv.bias, residual if conv.adds_residual else y, total, y, pixels, height, width, *y.stride(),
            IN=channels, OUT=out_channels, STRIDE=conv.stride, PADDING=conv.padding, TAPS=conv.taps.shape[1],
            SHUFFLE=conv.shuffle, ADDS_RESIDUAL=conv.adds_residual, STORES_RESIDUAL=conv.stores_residual,
            ACTIVATION=conv.activation, PDL=use_pdl, **tile, **({"launch_pdl": True} if use_pdl else {}),
        )  # fmt: skip
        x, residual = y, total if conv.stores_residual else residual


def tile_shape(pixels: int, channels: int, out_channels: int, stride: int) -> dict[str, int]:
    """Return the shape of a program's tile, tuned on an H200 with 1 and 104 rows of the MNIST and CIFAR-10 models."""
    block_k = max(16, power_of_two(channels))
    if out_channels <= NARROW_TILE:
        return {"M": 64, "N": 16, "K": min(64, block_k), "num_warps": 4, "num_stages": 2}
    if ceil_div(pixels, 64) * ceil_div(out_channels, 64) * stride**2 < MIN_PROGRAMS:
        return {"M": SMALL_TILE, "N": 16, "K": min(256, block_k), "num_warps": 4, "num_stages": 3}
    return {"M": 64, "N": 64, "K": min(128 if out_channels > 64 else 64, block_k), "num_warps": 4, "num_stages": 3}
