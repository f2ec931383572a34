"""The compiled engine, for CPUs: weights packed for the processor, bf16 if it has it, threads chosen by batch size.

The Transformer's step is compiled in pieces with constant weights: from one attention to the next, and attention itself.
Sampling from the logits is not compiled, as compiled code may round the noise differently. Neither is the decoder, whose
batch norms are fused.
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
from anytime.sampling.threads import use_threads

SINGLE_THREAD_ROWS = 8
"""Rows up to which one thread is faster than several: a step is many small products."""


def has_bf16() -> bool:
    """Return whether this processor multiplies bf16 in hardware."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class CompiledEngine(EagerEngine):
    """The eager engine with a compiled step."""

    name = "compiled"

    def __init__(self, prior: Transformer, autoencoder: VQVAE, precision: str) -> None:
        decoder = FusedBatchNormDecoder(autoencoder, DTYPES[precision])

        def decode(codes: Tensor) -> Tensor:
            return torch.cat([decoder(part) for part in codes.split(CPU_DECODE_BATCH)])

        super().__init__(prior, decode, torch.device("cpu"))
        self.precision = precision
        self.cast_prior = copy.deepcopy(prior).to(DTYPES[precision]).eval()
        self._steps: dict[int, _CompiledStep] = {}

    def is_warm(self, request: Request) -> bool:
        """Return whether the step is compiled for this batch size."""
        return len(request.rows) in self._steps and super().is_warm(request)

    def release(self) -> None:
        """Free all compiled steps."""
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
    """A compiled step for one batch size; all rows are at the same position."""

    def __init__(self, prior: Transformer, batch: int) -> None:
        self.config, self.is_small = prior.config, batch <= SINGLE_THREAD_ROWS
        blocks = prior.block_list()
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
        with use_threads(1 if self.is_small else None):
            h, out = self._embed(codes, torch.full_like(codes, at))
            for tail, keys, values in zip(self._tails, *caches, strict=True):
                h, out = tail(h, self._attend(out, keys, values))
        return out, KVCache(state.keys, state.values, state.position + 1, at + 1)


class _Embedding(nn.Module):
    def __init__(self, prior: Transformer) -> None:
        super().__init__()
        self.tokens, self.positions, self.norm = prior.tokens, prior.positions, prior.embedding_norm
        self.qkv = _QKV(prior.block_list()[0])

    def forward(self, codes: Int[Tensor, " batch"], position: Int[Tensor, " batch"]) -> tuple[Tensor, Tensor]:
        h = self.norm(self.tokens(codes) + self.positions(position))
        return h, self.qkv(h)


class _BlockTail(nn.Module):
    """A block after its attention, and the layer after it."""

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
    """Attend from [batch, 3 · width] to [batch, heads, positions, dim], writing the last position; summed in float32."""
    query, key, value = qkv.unflatten(1, (3, keys.shape[1], -1)).unbind(1)
    keys[:, :, -1], values[:, :, -1] = key, value
    scores = (query[:, :, None].float() * keys.float()).sum(-1) * query.shape[-1] ** -0.5
    found: Tensor = (scores.softmax(-1)[..., None] * values.float()).sum(2)
    return found.to(query.dtype).flatten(1)


@contextmanager
def _compiling(is_small: bool) -> Iterator[None]:
    """Compile with constant, packed weights; for few rows with the compiler's own products, which are faster there."""
    import torch._dynamo.config
    import torch._inductor.config

    options: dict[str, Any] = {"freezing": True}
    if is_small:
        options |= {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}
    # The same code is compiled for every block and batch size: with the default limit the compiler stops at the ninth.
    limits = {"recompile_limit": 4096, "accumulated_recompile_limit": 4096}
    with torch._inductor.config.patch(options), torch._dynamo.config.patch(limits), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler itself
        yield
