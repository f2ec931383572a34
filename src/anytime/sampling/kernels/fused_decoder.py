"""A decoder of pictures as a chain of kernels: a convolution with all that follows it, bias, residual and activation, is one.

The library has a kernel for each of them, and at a hundred rows starting them takes as long as running them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.networks.residual_image import ResidualBlock
from anytime.sampling.engines.cuda_step import ceil_div, power_of_two

Activation = Literal["relu", "silu", "sigmoid"]
ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid"}
NARROW = 16
"""Channels that the narrowest tile has."""
FEW = 16
"""Pixels of a program where there are few of them: it then begins before the one ahead has ended, as it is bound by latency."""
PLACES = 16
"""Of the map, that a program looks up at once."""
PROGRAMS = 64
"""So many large tiles keep a card busy; where there are fewer, smaller ones do it better."""
PDL = True
"""Triton's interpreter, which tests use, knows no early beginnings."""


@dataclass(frozen=True, slots=True)
class Link:
    """x -> ρ(Wx + bias + stream): the stream is added where it `joins`, what ρ is given is the new stream where it `keeps`.

    W is a transposed convolution that makes a map `stride` times as large. Each of the stride² pixels that a pixel becomes has
    taps of its own: those of output row stride·i + p come from the rows i + (p + padding) // stride − t, t = 0, 1, ...
    Where the last makes few channels, all these pixels are computed at once, as channels (p, q, channel) of a map that is not
    enlarged: its stride is 1 and its `shuffle` what the stride was.
    """

    taps: Float[Tensor, "pixel tap tap in out"]
    bias: Float[Tensor, " out"]
    stride: int
    padding: int
    activation: Activation
    joins: bool
    keeps: bool
    shuffle: int = 1


class NoChainError(Exception):
    """There is a layer that has no place in a chain."""


def linked(layers: nn.Sequential) -> list[Link] | None:
    """The chain of a decoder whose batch norms are folded, or None if it is none."""
    try:
        links = list(_links(list(layers)))
    except NoChainError:
        return None
    *body, last = links
    return None if last.joins else [*body, _at_once(last)]  # it writes with channels first, where a stream has them last


def _links(layers: list[nn.Module]) -> Iterator[Link]:
    """Convolutions with what follows them: an activation, or blocks x + W₂ ρ(W₁ ρ(x)) and then one.

    A block's first activation belongs to what comes before it, which keeps x for the block to add.
    """
    kept = taken = False  # whether the layer before keeps its x, and whether this one went with it
    for layer, behind in zip_longest(layers, layers[1:]):
        if taken:
            taken = False
            continue
        keeps = isinstance(behind, ResidualBlock)
        if isinstance(layer, ResidualBlock) and kept:
            _, first, between, second = layer.block
            yield _link(first, between, joins=False, keeps=False)
            yield _link(second, behind, joins=True, keeps=keeps)
        else:
            yield _link(layer, behind, joins=False, keeps=keeps)
        kept, taken = keeps, not keeps


def _link(layer: nn.Module, behind: nn.Module | None, *, joins: bool, keeps: bool) -> Link:
    if not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        raise NoChainError
    kernel, stride, padding = layer.kernel_size[0], layer.stride[0], (layer.kernel_size[0] - layer.stride[0]) // 2
    usual = type(layer)(layer.in_channels, layer.out_channels, kernel, stride, padding, device="meta")
    fits = kernel % stride == (kernel - stride) % 2 == 0 and (stride == 1 or isinstance(layer, nn.ConvTranspose2d))
    if not fits or str(layer) != str(usual):  # which tells of groups, dilation, padding and a missing bias
        raise NoChainError
    weight = layer.weight.detach()  # [in, out, height, width]
    if isinstance(layer, nn.Conv2d):  # the transposed convolution with its weights turned round
        weight = weight.transpose(0, 1).flip(2, 3)
    first = [(pixel + padding) % stride for pixel in range(stride)]
    taps = torch.stack([weight[:, :, y::stride, x::stride] for y in first for x in first]).permute(0, 3, 4, 1, 2).contiguous()
    assert layer.bias is not None
    return Link(taps, layer.bias.detach().float(), stride, padding, _activation(behind), joins, keeps)


def _at_once(link: Link) -> Link:
    """The same with the taps of all pixels side by side, each at the rows and columns that it reads."""
    stride, (_, count, _, channels, makes) = link.stride, link.taps.shape
    if stride == 1 or stride**2 * makes > NARROW:
        return link
    first = [(pixel + link.padding) // stride for pixel in range(stride)]
    whole = link.taps.new_zeros(1, *(first[-1] - first[0] + count,) * 2, channels, stride, stride, makes)
    for p in range(stride):
        for q in range(stride):
            y, x = first[-1] - first[p], first[-1] - first[q]
            whole[0, y : y + count, x : x + count, :, p, q] = link.taps[p * stride + q]
    bias = link.bias.repeat(stride**2)
    return replace(link, taps=whole.flatten(4), bias=bias, stride=1, padding=first[-1], shuffle=stride)


def _activation(layer: nn.Module | None) -> Activation:
    """Of what comes next: itself, or a block's first."""
    named = layer.block[0] if isinstance(layer, ResidualBlock) else layer
    for kind, name in ACTIVATIONS.items():
        if isinstance(named, kind):
            return name
    raise NoChainError


def features(
    codes: Int[Tensor, "batch length"], codebook: Float[Tensor, "entry dim"], height: int
) -> Float[Tensor, "batch height width length"]:
    """The map whose channels are the codes' entries, channels last."""
    from anytime.sampling.kernels import triton_kernels

    (batch, length), dim = codes.shape, codebook.shape[1]
    x = codebook.new_empty(batch, height, dim // height, length)
    triton_kernels.look_up[batch, ceil_div(dim, PLACES)](
        codes, codebook, x, length, dim, LENGTH=power_of_two(length), PLACES=PLACES
    )
    return x


def run(
    links: Sequence[Link], x: Float[Tensor, "batch height width latent"], out: Float[Tensor, "batch channel high wide"]
) -> None:
    """The chain, one kernel for each link; its last writes `out`, with channels first."""

    stream: Tensor | None = None
    for link in links:
        batch, height, width, channels = x.shape
        pixels, makes = batch * height * width, link.taps.shape[-1]
        last = link is links[-1]
        y = out.permute(0, 2, 3, 1) if last else x.new_empty(batch, height * link.stride, width * link.stride, makes)
        total = torch.empty_like(y) if link.keeps else y  # not written where it does not keep
        tile = tile_of(pixels, channels, makes, link.stride)
        early = PDL and tile["M"] <= FEW
        triton_kernels.convolve[ceil_div(pixels, tile["M"]), ceil_div(makes, tile["N"]), link.stride**2](
            x, link.taps, link.bias, stream if link.joins else y, total, y, pixels, height, width, *y.stride(),
            IN=channels, OUT=makes, STRIDE=link.stride, PADDING=link.padding, TAPS=link.taps.shape[1], SHUFFLE=link.shuffle,
            JOINS=link.joins, KEEPS=link.keeps, ACTIVATION=link.activation, PDL=early,
            **tile, **({"launch_pdl": True} if early else {}),
        )  # fmt: skip
        x, stream = y, total if link.keeps else stream


def tile_of(pixels: int, channels: int, makes: int, stride: int) -> dict[str, int]:
    """Shape of a program's tile, as measured on an H200 with 1 and 104 rows of MNIST's and CIFAR-10's models."""
    deep = max(16, power_of_two(channels))
    if makes <= NARROW:
        return {"M": 64, "N": 16, "K": min(64, deep), "num_warps": 4, "num_stages": 2}
    if ceil_div(pixels, 64) * ceil_div(makes, 64) * stride**2 < PROGRAMS:
        return {"M": FEW, "N": 16, "K": min(256, deep), "num_warps": 4, "num_stages": 3}
    return {"M": 64, "N": 64, "K": min(128 if makes > 64 else 64, deep), "num_warps": 4, "num_stages": 3}
