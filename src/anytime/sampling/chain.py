"""A decoder of pictures as a chain of convolutions, each with all that follows it in one kernel: bias, residual, activation.

The library has a kernel for each of them, and at a hundred rows a kernel is launched for longer than it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anytime.autoencoders.residual_image import ResidualBlock

Activation = Literal["relu", "silu", "sigmoid"]
ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid"}
FUNCTIONS = {"relu": torch.relu, "silu": nn.functional.silu, "sigmoid": torch.sigmoid}
BLOCK = 1024  # numbers that a program of the fused kernels works on


@dataclass(frozen=True, slots=True)
class Link:
    """x -> ρ(Wx + bias + stream): the stream is added where it `joins`, what ρ is given is the new stream where it `keeps`."""

    convolution: nn.Conv2d | nn.ConvTranspose2d  # W, its bias taken off
    bias: Float[Tensor, " channel"]
    activation: Activation
    joins: bool
    keeps: bool


def linked(layers: nn.Sequential) -> list[Link] | None:
    """The chain of a decoder whose batch norms are folded; the biases of its convolutions move into it. None if it is none."""
    try:
        parts = list(_parts(list(layers)))
    except NoChainError:
        return None
    links = []
    for convolution, activation, joins, keeps in parts:
        assert convolution.bias is not None, "a folded norm leaves one, and all others have one"
        links.append(Link(convolution, convolution.bias.detach().float(), activation, joins, keeps))
        convolution.bias = None
    return links


class NoChainError(Exception):
    """There is a layer that has no place in a chain."""


def _parts(layers: list[nn.Module]) -> Iterator[tuple[nn.Conv2d | nn.ConvTranspose2d, Activation, bool, bool]]:
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
            yield _convolution(first), _activation(between), False, False
            yield _convolution(second), _activation(behind), True, keeps
        else:
            yield _convolution(layer), _activation(behind), False, keeps
        kept, taken = keeps, not keeps


def _convolution(layer: nn.Module) -> nn.Conv2d | nn.ConvTranspose2d:
    if not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        raise NoChainError
    return layer


def _activation(layer: nn.Module | None) -> Activation:
    """Of what comes next: itself, or a block's first."""
    named = layer.block[0] if isinstance(layer, ResidualBlock) else layer
    for kind, name in ACTIVATIONS.items():
        if isinstance(named, kind):
            return name
    raise NoChainError


def plain(links: Sequence[Link], x: Float[Tensor, "batch ..."], out: Float[Tensor, "batch ..."]) -> None:
    """The chain by the library's functions."""
    stream: Tensor | None = None
    for link in links:
        total = link.convolution(x) + link.bias[:, None, None].to(x.dtype)
        if link.joins:
            assert stream is not None
            total = total + stream
        stream = total if link.keeps else stream
        x = FUNCTIONS[link.activation](total)
    out.copy_(x)


def fused(links: Sequence[Link], x: Float[Tensor, "batch ..."], out: Float[Tensor, "batch ..."]) -> None:
    """The chain with one kernel behind every convolution; x has its channels last, `out` first."""
    from anytime.sampling import kernels  # needs triton, which only machines with a GPU have

    stream: Tensor | None = None
    *body, end = links
    for link in body:
        y = link.convolution(x).contiguous(memory_format=torch.channels_last)
        before = stream if link.joins else y  # not read where it does not join
        total = torch.empty_like(y) if link.keeps else y  # not written where it does not keep
        kernels.follow[_ceil(y.numel(), BLOCK),](
            y, link.bias, before, total, y.numel(),
            CHANNELS=y.shape[1], JOINS=link.joins, KEEPS=link.keeps, ACTIVATION=link.activation, BLOCK=BLOCK,
        )  # fmt: skip
        x, stream = y, total if link.keeps else stream
    y = end.convolution(x).contiguous(memory_format=torch.channels_last)
    kernels.finish[_ceil(y.numel(), BLOCK),](
        y, end.bias, out, y.numel(),
        CHANNELS=y.shape[1], PIXELS=y.shape[2] * y.shape[3], ACTIVATION=end.activation, BLOCK=BLOCK,
    )  # fmt: skip


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
