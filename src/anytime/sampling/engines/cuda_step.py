"""One step of the Transformer prior on static buffers, to be captured as a CUDA graph.

Up to `SMALL_BATCH` rows it runs small fused kernels, above that cuBLAS products with fused kernels between them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.core import random
from anytime.priors.transformer import Transformer
from anytime.sampling.engines.base import Request
from anytime.sampling.gumbel import filter_rows

SMALL_BATCH = 256
"""Rows up to which the small fused kernels are faster than cuBLAS."""
PDL = True
"""Programmatic dependent launch; Triton's interpreter, used in tests, does not support it."""


def cast_prior(prior: Transformer, dtype: torch.dtype) -> Transformer:
    """Copy a prior with its linear layers and embeddings in the engine's precision; layer norms stay in float32."""
    cast = copy.deepcopy(prior).requires_grad_(False)
    for module in cast.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.to(dtype)
    return cast


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """Everything a step reads and writes, for one batch size."""

    keys: Tensor  # [layers, batch, heads, length, head_dim]
    values: Tensor
    codes: Tensor  # [batch, length], int32
    position: Tensor  # [batch], int32: steps of each row
    request: Tensor  # [batch, 5], int32: two key words of the seed, row number, length of the prefix, whether it is active
    temperature: Tensor  # [batch, 1], float32
    top_k: Tensor  # [batch], int64, see `SamplingSettings.limits`
    top_p: Tensor  # [batch], float32

    @staticmethod
    def empty(prior: Transformer, batch: int, device: torch.device) -> StepBuffers:
        """Allocate the buffers."""
        c = prior.config
        shape = (c.layers, batch, c.heads, c.length, c.width // c.heads)
        keys, values = (torch.empty(shape, dtype=prior.tokens.weight.dtype, device=device) for _ in range(2))

        def int_zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        temperature, top_p = torch.ones(batch, 1, device=device), torch.ones(batch, device=device)
        top_k = torch.ones(batch, dtype=torch.long, device=device)
        codes, position, request = int_zeros(batch, c.length), int_zeros(batch), int_zeros(batch, 5)
        return StepBuffers(keys, values, codes, position, request, temperature, top_k, top_p)

    def front(self, rows: int) -> StepBuffers:
        """Return the buffers of the first rows, in the same memory."""
        others = (self.codes, self.position, self.request, self.temperature, self.top_k, self.top_p)
        return StepBuffers(self.keys[:, :rows], self.values[:, :rows], *(tensor[:rows] for tensor in others))

    def write(self, slots: slice | Int[Tensor, " n"], request: Request, codebook_size: int) -> None:
        """Set the settings and the given codes of a request's rows, and activate them."""
        (first, second), rows, given = random.key(request.seed), request.rows.to("cpu", torch.int32), request.codes.shape[1]
        numbers = torch.tensor([first, second, 0, given, 1], dtype=torch.int32).repeat(len(rows), 1)
        numbers[:, 2] = rows
        self.request[slots] = numbers if isinstance(slots, slice) else numbers.to(self.request.device)
        top_k, top_p = request.settings.limits(codebook_size)
        for tensor, value in ((self.temperature, request.settings.temperature), (self.top_k, top_k), (self.top_p, top_p)):
            if not isinstance(slots, slice):  # no tensor is made of the value, which takes the host most of the time
                tensor.index_fill_(0, slots, value)
            elif request.settings.filters or tensor is self.temperature:  # without filters, the others are not read
                tensor[slots] = value
        if given:
            self.codes[slots, :given] = request.codes.to(self.codes.device, torch.int32)


class CudaStep:
    """One step: reads the previous codes, writes the next ones and advances every row's position by one."""

    def __init__(self, prior: Transformer) -> None:
        from anytime.sampling.kernels import triton_kernels  # needs triton

        self.prior, self.kernels = prior, triton_kernels
        self.precision = "ieee" if prior.tokens.weight.dtype is torch.float32 else "tf32"
        self.padded = power_of_two(prior.config.width)

    def __call__(self, buffers: StepBuffers, filters: bool) -> None:
        batch, c = len(buffers.position), self.prior.config
        h = self._embed(buffers)
        logits = self._forward_small(h, buffers) if batch <= SMALL_BATCH else self._forward_large(h, buffers)
        temperature = buffers.temperature
        if filters:
            logits = filter_rows(logits.float() / temperature, buffers.top_k, buffers.top_p)
            temperature = torch.ones_like(temperature)
        self.kernels.sample_codes[batch,](
            logits, buffers.request, temperature, buffers.position, buffers.codes, c.length,
            c.codebook_size, BLOCK=power_of_two(c.codebook_size), **_launch(batch),
        )  # fmt: skip

    def _embed(self, buffers: StepBuffers) -> Float[Tensor, "batch width"]:
        prior, c, norm = self.prior, self.prior.config, self.prior.embedding_norm
        h = prior.tokens.weight.new_empty(len(buffers.position), c.width)
        self.kernels.embed[len(h),](
            buffers.codes, buffers.position, prior.tokens.weight, prior.positions.weight, norm.weight, norm.bias, h,
            c.codebook_size, c.length, c.width, norm.eps, BLOCK=self.padded, **_launch(len(h)),
        )  # fmt: skip
        return h

    def _attend(
        self, layer: int, qkv: Float[Tensor, "batch three_widths"], buffers: StepBuffers
    ) -> Float[Tensor, "batch width"]:
        c, batch = self.prior.config, len(qkv)
        dim = c.width // c.heads
        attended = qkv.new_empty(batch, c.width)
        tile = _attention_tile(batch, c.heads)
        self.kernels.attend[batch, ceil_div(c.heads, tile.heads)](
            qkv, buffers.keys[layer], buffers.values[layer], buffers.position, attended, c.length, dim**-0.5,
            HEADS=c.heads, DIM=dim, GROUP=tile.heads, PADDED=power_of_two(dim), BLOCK_T=tile.positions, STAGES=tile.stages,
            num_warps=tile.warps, **_launch(batch),
        )  # fmt: skip
        return attended

    def _forward_large(self, h: Float[Tensor, "batch width"], buffers: StepBuffers) -> Float[Tensor, "batch codebook_size"]:
        for index, layer in enumerate(self.prior.block_list()):
            attended = self._attend(index, torch.addmm(layer.qkv.bias, h, layer.qkv.weight.t()), buffers)
            h = self._add_norm(attended @ layer.out.weight.t(), layer.out.bias, h, layer.attention_norm)
            hidden = torch._addmm_activation(layer.up.bias, h, layer.up.weight.t())  # ReLU in the product's epilogue
            h = self._add_norm(hidden @ layer.down.weight.t(), layer.down.bias, h, layer.norm)
        return h @ self.prior.tokens.weight[:-1].t()

    def _forward_small(self, h: Float[Tensor, "batch width"], buffers: StepBuffers) -> Float[Tensor, "batch codebook_size"]:
        for index, layer in enumerate(self.prior.block_list()):
            attended = self._attend(index, self._linear(h, layer.qkv), buffers)
            h = self._add_norm(self._split_linear(attended, layer.out), layer.out.bias, h, layer.attention_norm)
            hidden = self._linear(h, layer.up, relu=True)
            h = self._add_norm(self._split_linear(hidden, layer.down), layer.down.bias, h, layer.norm)
        logits = torch.empty(len(h), self.prior.codebook_size, device=h.device)
        self._matmul(h, self.prior.tokens.weight[:-1], None, logits, relu=False, split=1)
        return logits

    def _add_norm(
        self, x: Float[Tensor, "*parts batch width"], bias: Tensor, residual: Float[Tensor, "batch width"], norm: nn.LayerNorm
    ) -> Float[Tensor, "batch width"]:
        out, (rows, width) = torch.empty_like(residual), residual.shape
        block = 1 if rows <= SMALL_BATCH else 4
        self.kernels.add_norm[ceil_div(rows, block),](
            x, bias, residual, norm.weight, norm.bias, out, rows, width, norm.eps,
            PARTS=x.shape[0] if x.ndim == 3 else 1, BLOCK_M=block, BLOCK=self.padded, num_warps=4, **_launch(rows),
        )  # fmt: skip
        return out

    def _linear(self, h: Float[Tensor, "batch k"], linear: nn.Linear, *, relu: bool = False) -> Float[Tensor, "batch n"]:
        out = h.new_empty(len(h), len(linear.weight))
        self._matmul(h, linear.weight, linear.bias, out, relu=relu, split=1)
        return out

    def _split_linear(self, x: Float[Tensor, "batch k"], linear: nn.Linear) -> Float[Tensor, "split batch n"]:
        """Return the product without its bias, as parts to be summed."""
        split = split_k(*x.shape)
        dtype = torch.float32 if split > 1 else x.dtype
        parts = torch.empty(split, len(x), len(linear.weight), dtype=dtype, device=x.device)
        self._matmul(x, linear.weight, None, parts, relu=False, split=split)
        return parts

    def _matmul(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, *, relu: bool, split: int) -> None:
        rows, (n, k) = len(x), weight.shape
        tile = tile_shape(rows, k, split, exact=self.precision == "ieee")
        grid = (ceil_div(rows, tile["BLOCK_M"]), ceil_div(n, tile["BLOCK_N"]), split)
        self.kernels.linear[grid](
            x, weight, weight if bias is None else bias, out, rows, K=k, N=n, RELU=relu, BIAS=bias is not None, SPLIT=split,
            PRECISION=self.precision, **tile, **_launch(rows),
        )  # fmt: skip


def _launch(rows: int) -> dict[str, bool]:
    """Use programmatic dependent launch for small batches; after cuBLAS products it does not pay."""
    return {"PDL": PDL and rows <= SMALL_BATCH} | ({"launch_pdl": True} if PDL and rows <= SMALL_BATCH else {})


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Shape of one attention program."""

    heads: int  # computed one after the other
    positions: int  # read at once
    warps: int
    stages: int  # reads in flight


def _attention_tile(rows: int, heads: int) -> AttentionTile:
    if rows <= 16:
        return AttentionTile(1, 64, 4, 1)
    if rows < 4096:
        return AttentionTile(1, 16, 1, 3 if rows <= SMALL_BATCH else 1)
    return AttentionTile(heads, 8, 1, 1)  # while the cache is short, thousands of programs cost more to start than to run


def split_k(rows: int, k: int) -> int:
    """Return the number of equal parts of a sum over k; without splitting, few rows leave most of the GPU idle."""
    most = k // 256 if rows <= 16 or k <= 512 else k // 512
    return next(parts for parts in (8, 4, 2, 1) if parts == 1 or (parts <= most and k % (parts * 128) == 0))


def tile_shape(rows: int, k: int, split: int, *, exact: bool) -> dict[str, Any]:
    """Return the shape of a program's tile, tuned on an H200 with the paper's widths."""
    if exact:  # no tensor cores: products are unrolled, so a deep tile takes minutes to compile
        return {"BLOCK_M": 16 if rows <= 16 else 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
    block_k = max(16, min(512, power_of_two(k // split)))
    if rows <= 16:
        return {"BLOCK_M": 16, "BLOCK_N": 16 if split == 1 else 32, "BLOCK_K": block_k, "num_warps": 2, "num_stages": 2}
    single_pass = split == 1 and k == block_k  # otherwise the tile read ahead must fit too
    depth = block_k if single_pass else min(256 if split > 1 else 128, block_k)
    return {"BLOCK_M": 32 if rows <= 32 else 64, "BLOCK_N": 32, "BLOCK_K": depth, "num_warps": 4, "num_stages": 2}


def power_of_two(n: int) -> int:
    """Return the smallest power of two of at least n."""
    return 1 << (n - 1).bit_length()


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def bucket(rows: int) -> int:
    """Return the batch size computed for `rows` rows: a power of two, a multiple of 8 up to 128, or 3/4 of a power of two.

    >>> [bucket(n) for n in (1, 3, 9, 100, 130, 8192)]
    [1, 4, 16, 104, 192, 8192]
    """
    if 16 < rows <= 128:
        return ceil_div(rows, 8) * 8
    size = power_of_two(rows)
    return size * 3 // 4 if 128 < rows <= size * 3 // 4 else size


def capture(work: Callable[[], Any], reset: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """Capture work as a CUDA graph, after two runs that compile its kernels, each from a reset."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            reset()  # the buffers may be at their last position
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    reset()
    return graph
