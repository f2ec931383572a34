"""The decoder of the cuda engine: batch norms folded into the convolutions, channels last, captured as a graph by bucket.

A map over time is taken for a picture one pixel high: channels-last kernels know nothing else.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.layout import to_features
from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling import chain
from anytime.sampling.cuda_step import bucket, capture

CAPTURED = 512
"""Rows up to which launching the kernels one by one would take longer than running them."""


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    codes: Tensor
    out: Tensor


def folded(layers: nn.Sequential) -> nn.Sequential:
    """The same function with every batch norm merged into the transposed convolution before it."""
    out: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            before = out.pop()
            assert isinstance(before, nn.ConvTranspose2d)
            out.append(_merged(before, layer))
        else:
            out.append(layer)
    return nn.Sequential(*out)


def _merged(convolution: nn.ConvTranspose2d, norm: nn.BatchNorm2d) -> nn.ConvTranspose2d:
    """γ (Wx + b − μ) / σ + β = (γ/σ) W x + (b − μ) γ/σ + β"""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    shift = norm.bias - norm.running_mean * scale
    c = convolution
    size, stride, padding = (tuple(map(int, v)) for v in (c.kernel_size, c.stride, c.padding))
    merged = nn.ConvTranspose2d(c.in_channels, c.out_channels, size, stride, padding, device=c.weight.device)  # type: ignore[arg-type]
    merged.weight.data = c.weight.detach() * scale.detach()[:, None, None]  # [in, out, height, width]
    assert merged.bias is not None
    merged.bias.data = (shift + c.bias * scale if c.bias is not None else shift).detach()
    return merged


def one_high(layer: nn.Module) -> nn.Module:
    """The same function of maps over time that are pictures one pixel high, which convolutions take with channels last."""
    if isinstance(layer, nn.Unflatten):  # a dense layer's outputs become a map
        channels, time = layer.unflattened_size
        return nn.Unflatten(1, (int(channels), 1, int(time)))
    if not isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
        for name, child in layer.named_children():
            setattr(layer, name, one_high(child))
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


class Decoder:
    def __init__(self, autoencoder: VQVAE, dtype: torch.dtype) -> None:
        self.config = autoencoder.config
        codebook = autoencoder.quantizer.codebook.detach()
        self.missing = len(codebook)
        zero = codebook.new_zeros(1, self.config.dim)  # the latent of a missing code
        self.codebook = torch.cat([codebook, zero]).to(dtype)
        layers = folded(copy.deepcopy(autoencoder.decoder))
        self.layers = (one_high(layers) if self.config.is_sound else layers).to(dtype).eval()
        self.layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.links = chain.linked(layers) if codebook.is_cuda and dtype is torch.bfloat16 else None
        self._captured: dict[int, _Captured] = {}

    def ready(self, rows: int) -> bool:
        return rows > CAPTURED or rows in self._captured

    def release(self) -> None:
        self._captured.clear()

    def __call__(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *place"]:
        rows, given = codes.shape
        size = bucket(rows)
        if size > CAPTURED:
            return self._decoded(
                nn.functional.pad(codes, (0, self.config.length - given), value=self.missing), self._empty(rows)
            )
        if size not in self._captured:
            self._captured[size] = self._capture(size, codes.device)
        held = self._captured[size]
        held.codes[:rows, :given] = codes
        if given < self.config.length:
            held.codes[:rows, given:] = self.missing
        held.graph.replay()
        return held.out[:rows].clone()

    def _capture(self, size: int, device: torch.device) -> _Captured:
        codes = torch.zeros(size, self.config.length, dtype=torch.long, device=device)
        out = self._empty(size)
        return _Captured(capture(lambda: self._decoded(codes, out), lambda: None), codes, out)

    def _empty(self, rows: int) -> Float[Tensor, "batch channel *place"]:
        return torch.empty(rows, *self.config.shape, device=self.codebook.device)

    def _decoded(self, codes: Int[Tensor, "batch length"], out: Float[Tensor, "batch channel *place"]) -> Tensor:
        """`out`, filled."""
        latents = self.codebook[codes]
        features = to_features(latents, self.config.layout, self.config.places)
        if self.links is not None:
            chain.run(self.links, features.permute(0, 2, 3, 1).contiguous(), out)
            return out
        if self.config.is_sound:
            features = features[:, :, None]
        return out.copy_(self.layers(features.to(memory_format=torch.channels_last)).view_as(out))
