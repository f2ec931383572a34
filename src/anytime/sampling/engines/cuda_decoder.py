"""The decoder of the cuda engine: a CUDA graph per bucket, of fused convolutions in bf16 where possible."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling.engines.cuda_step import bucket, capture
from anytime.sampling.engines.fused_batch_norm import FusedBatchNormDecoder
from anytime.sampling.kernels import fused_decoder

MAX_GRAPH_ROWS = 512
"""Rows up to which launching kernels one by one takes longer than running them."""


@dataclass(frozen=True, slots=True)
class _DecodeGraph:
    graph: torch.cuda.CUDAGraph
    codes: Tensor
    out: Tensor


class CudaDecoder(FusedBatchNormDecoder):
    """Decodes by replaying CUDA graphs."""

    def __init__(self, autoencoder: VQVAE, dtype: torch.dtype) -> None:
        super().__init__(autoencoder, dtype)
        is_fusable = self.codebook.is_cuda and dtype is torch.bfloat16 and not self.config.is_audio
        self.fused_convs = fused_decoder.fuse_decoder(self.layers) if is_fusable else None
        self._graphs: dict[int, _DecodeGraph] = {}

    def is_warm(self, rows: int) -> bool:
        """Return whether the graph of this bucket is captured or not needed."""
        return rows > MAX_GRAPH_ROWS or rows in self._graphs

    def release(self) -> None:
        """Free all graphs."""
        self._graphs.clear()

    @torch.no_grad()
    def __call__(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch channel *spatial"]:
        rows, prefix_length = codes.shape
        size = bucket(rows)
        if size > MAX_GRAPH_ROWS:
            return super().__call__(codes)
        if size not in self._graphs:
            self._graphs[size] = self._capture(size, codes.device)
        captured = self._graphs[size]
        captured.codes[:rows, :prefix_length] = codes
        if prefix_length < self.config.length:
            captured.codes[:rows, prefix_length:] = self.missing_code
        captured.graph.replay()
        return captured.out[:rows].clone()

    def _capture(self, size: int, device: torch.device) -> _DecodeGraph:
        codes = torch.zeros(size, self.config.length, dtype=torch.long, device=device)
        out = self._empty_output(size)
        return _DecodeGraph(capture(lambda: self._decode_into(codes, out), lambda: None), codes, out)

    def _decode_into(self, codes: Int[Tensor, "batch length"], out: Float[Tensor, "batch channel *spatial"]) -> Tensor:
        if self.fused_convs is None:
            return super()._decode_into(codes, out)
        if self.config.layout == "channel":
            x = fused_decoder.features(codes, self.codebook, self.config.spatial_shape[0])
        else:
            x = self._features(codes).permute(0, 2, 3, 1).contiguous()
        fused_decoder.run(self.fused_convs, x, out)
        return out
