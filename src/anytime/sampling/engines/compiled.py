"""The compiled engine, for CPUs: weights packed for the processor, bf16 where it has it, threads chosen by batch size.

The Transformer's step is compiled between two attentions: the rest of one block and the start of the next are one piece with
constant weights, attention reads the filled part of the cache in one pass. What is drawn from the logits stays as it is:
compiled code has been seen to round the noise differently. The decoder has its batch norms folded and is not compiled.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.autoencoders.vqvae import VQVAE
from anytime.priors.transformer import KVCache, Transformer, TransformerBlock
from anytime.sampling.engines.base import CPU_DECODE_BATCH, DTYPES, Request
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.engines.fused_batch_norm import FusedBatchNormDecoder

SINGLE_THREAD_ROWS = 8
"""Rows up to which one thread is faster than several: a step is many small products, and waking threads takes longer."""


def has_bf16() -> bool:
    """Whether this processor multiplies bf16 in hardware."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class CompiledEngine(EagerEngine):
    name = "compiled"

    def __init__(self, prior: Transformer, autoencoder: VQVAE, precision: str) -> None:
        decoder = FusedBatchNormDecoder(autoencoder, DTYPES[precision])
        super().__init__(
            prior, lambda codes: torch.cat([decoder(part) for part in codes.split(CPU_DECODE_BATCH)]), torch.device("cpu")
        )
        self.precision = precision
        self.cast_prior = copy.deepcopy(prior).to(DTYPES[precision]).eval()
        self._steps: dict[int, _CompiledStep] = {}

    def is_warm(self, request: Request) -> bool:
        return len(request.rows) in self._steps and super().is_warm(request)

    def release(self) -> None:
        self._steps.clear()

    def _initial_state(self, batch: int) -> KVCache:
        return self.cast_prior.start(batch)

    def _logits(
        self, codes: Int[Tensor, " batch"] | None, state: KVCache
    ) -> tuple[Float[Tensor, "batch codebook_size"], KVCache]:
        if codes is None:
            logits, state = self.cast_prior.step(None, state)
            return logits.float(), state
        return self._step(len(codes))(codes, state)

    def _step(self, batch: int) -> _CompiledStep:
        if batch not in self._steps:
            self._steps[batch] = _CompiledStep(self.cast_prior, batch)
        return self._steps[batch]


class _CompiledStep:
    """One step for a fixed batch; all rows stand at the same position."""

    def __init__(self, prior: Transformer, batch: int) -> None:
        self.config, self.is_small = prior.config, batch <= SINGLE_THREAD_ROWS
        blocks = [block for block in prior.blocks if isinstance(block, TransformerBlock)]
        after = [_QKV(block) for block in blocks[1:]] + [_Head(prior)]
        self._embed = torch.compile(_Embedding(prior), dynamic=False)
        self._tails = [
            torch.compile(_BlockTail(block, next_stage), dynamic=False) for block, next_stage in zip(blocks, after, strict=True)
        ]
        self._attend = torch.compile(_attend, dynamic=True)
        with _compiling(self.is_small):
            state = prior.start(batch)
            for max_position in range(1, min(4, prior.length)):
                state = KVCache(state.keys, state.values, state.position, max_position)
                self(torch.zeros(batch, dtype=torch.long), state)

    def __call__(self, codes: Int[Tensor, " batch"], state: KVCache) -> tuple[Float[Tensor, "batch codebook_size"], KVCache]:
        at = state.max_position
        caches = [cache.narrow(3, 0, at + 1).unbind(0) for cache in (state.keys, state.values)]
        with _threads(1 if self.is_small else None):
            h, out = self._embed(codes, torch.full_like(codes, at))
            for tail, keys, values in zip(self._tails, *caches, strict=True):
                h, out = tail(h, self._attend(out, keys, values))
        return out, KVCache(state.keys, state.values, state.position + 1, at + 1)


class _Embedding(nn.Module):
    def __init__(self, prior: Transformer) -> None:
        super().__init__()
        self.tokens, self.positions, self.norm = prior.tokens, prior.positions, prior.embedding_norm
        self.qkv = _QKV(next(block for block in prior.blocks if isinstance(block, TransformerBlock)))

    def forward(self, codes: Int[Tensor, " batch"], position: Int[Tensor, " batch"]) -> tuple[Tensor, Tensor]:
        h = self.norm(self.tokens(codes) + self.positions(position))
        return h, self.qkv(h)


class _BlockTail(nn.Module):
    """A block after its attention, and what comes behind it."""

    def __init__(self, block: TransformerBlock, next_stage: nn.Module) -> None:
        super().__init__()
        self.block, self.next_stage = block, next_stage

    def forward(self, h: Float[Tensor, "batch width"], attended: Float[Tensor, "batch width"]) -> tuple[Tensor, Tensor]:
        block = self.block
        h = block.attention_norm(h + block.out(attended))
        h = block.norm(h + block.down(F.relu(block.up(h))))
        return h, self.next_stage(h)


class _QKV(nn.Module):
    def __init__(self, block: TransformerBlock) -> None:
        super().__init__()
        self.qkv = block.qkv

    def forward(self, h: Float[Tensor, "batch width"]) -> Tensor:
        out: Tensor = self.qkv(h)
        return out


class _Head(nn.Module):
    def __init__(self, prior: Transformer) -> None:
        super().__init__()
        self.weight = nn.Parameter(prior.tokens.weight[:-1].clone(), requires_grad=False)

    def forward(self, h: Float[Tensor, "batch width"]) -> Tensor:
        return F.linear(h, self.weight).float()


def _attend(qkv: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """[batch, 3 · width] against [batch, heads, places, dim], the last place of which it fills; summed in float32."""
    query, key, value = qkv.unflatten(1, (3, keys.shape[1], -1)).unbind(1)
    keys[:, :, -1], values[:, :, -1] = key, value
    scores = (query[:, :, None].float() * keys.float()).sum(-1) * query.shape[-1] ** -0.5
    found: Tensor = (scores.softmax(-1)[..., None] * values.float()).sum(2)
    return found.to(query.dtype).flatten(1)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _compiling(is_small: bool) -> Iterator[None]:
    """Constant weights, packed at compile time; for few rows the compiler's own products, which beat the library's there."""
    import torch._dynamo.config
    import torch._inductor.config

    options: dict[str, Any] = {"freezing": True}
    if is_small:
        options |= {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}
    # One piece of code serves all blocks and batches: without a higher limit the compiler gives up on the ninth.
    limits = {"recompile_limit": 4096, "accumulated_recompile_limit": 4096}
    with torch._inductor.config.patch(options), torch._dynamo.config.patch(limits), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own affairs
        yield
