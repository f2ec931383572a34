"""The decoder of the cuda engine: captured as a graph by bucket, in bf16 a chain of our own kernels where there is one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling.engines.cuda_step import bucket, capture
from anytime.sampling.engines.fused_batch_norm import FoldedDecoder
from anytime.sampling.kernels import fused_decoder

CAPTURED = 512
"""Rows up to which launching the kernels one by one would take longer than running them."""


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    codes: Tensor
    out: Tensor


class Decoder(FoldedDecoder):
    def __init__(self, autoencoder: VQVAE, dtype: torch.dtype) -> None:
        super().__init__(autoencoder, dtype)
        chained = self.codebook.is_cuda and dtype is torch.bfloat16 and not self.config.is_sound
        self.links = fused_decoder.linked(self.layers) if chained else None
        self._captured: dict[int, _Captured] = {}

    def ready(self, rows: int) -> bool:
        return rows > CAPTURED or rows in self._captured

    def release(self) -> None:
        self._captured.clear()

    @torch.no_grad()
    def __call__(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *place"]:
        rows, given = codes.shape
        size = bucket(rows)
        if size > CAPTURED:
            return super().__call__(codes)
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

    def _decoded(self, codes: Int[Tensor, "batch length"], out: Float[Tensor, "batch channel *place"]) -> Tensor:
        if self.links is None:
            return super()._decoded(codes, out)
        if self.config.layout == "channel":
            x = fused_decoder.features(codes, self.codebook, self.config.places[0])
        else:
            x = self._features(codes).permute(0, 2, 3, 1).contiguous()
        fused_decoder.run(self.links, x, out)
        return out
