"""The Transformer's step on a CPU: packed weights, few calls, and attention over the filled part of the KV cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.priors.transformer import KVCache, Transformer, TransformerBlock
from anytime.sampling.engines.cached_transformer import CachedTransformer
from anytime.sampling.engines.packed_linear import PackedLinear, padded_rows

MANY_ROWS = 32
"""Rows from which on attention reads a whole KV cache once half of it is filled, rather than its filled part."""


class PackedTransformer(CachedTransformer):
    """The Transformer's products with packed weights. In bf16, the KV cache, attention and norms stay float32."""

    def __init__(self, prior: Transformer, dtype: torch.dtype) -> None:
        self._tokens, self._positions = prior.tokens.weight.detach(), prior.positions.weight.detach()
        self._norm = _Norm(prior.embedding_norm)
        self._blocks = [_PackedBlock(block, dtype) for block in prior.block_list()]
        self._head = PackedLinear(self._tokens[:-1], None, dtype)
        super().__init__(prior)

    def logits(self, tokens: Int[Tensor, "batch window"], state: KVCache) -> Float[Tensor, "batch window codebook_size"]:
        """Return the logits of the codes after each of these, and write their keys and values to the cache."""
        step = _Step(tokens.shape[1], state)
        h = self._norm(step.pad((self._tokens[tokens] + self._positions[step.positions]).flatten(0, 1)))
        for block, keys, values in zip(self._blocks, state.keys, state.values, strict=True):
            h = block(h, keys, values, step)
        return self._head(h)[: step.rows].view(*tokens.shape, -1)


class _Step:
    """Where a step writes and what it attends to. Its products have padding rows, which attention leaves out."""

    def __init__(self, window: int, state: KVCache) -> None:
        batch, capacity = len(state.position), state.keys.shape[3]
        first, self.window, end = state.max_position, window, state.max_position + window
        self.rows = batch * window
        self.padding = padded_rows(self.rows) - self.rows
        # A whole cache has no gaps between its rows: 8.0 instead of 11.6 ms a step at 56 of 70 positions and 100 rows. With
        # few rows the mask that it needs takes more time than it saves.
        self.read = capacity if batch >= MANY_ROWS and 2 * end > capacity else end
        self.positions: slice | Tensor = slice(first, end)
        self.bias: Tensor | None = None  # of the scores: [batch or 1, 1, window, read]
        if not state.is_uniform:
            self.positions, self.batch = state.position[:, None], _range(0, batch)
            self.bias = _bias(_range(0, self.read) <= self.positions)[:, None, None]
        elif window > 1 or self.read > end:
            self.bias = _bias(_range(0, self.read) <= _range(first, end)[:, None])[None, None]

    def pad(self, x: Float[Tensor, "rows width"]) -> Float[Tensor, "padded width"]:
        """Append the padding rows."""
        return F.pad(x, (0, 0, 0, self.padding)) if self.padding else x

    def write(self, cache: Float[Tensor, "batch heads length dim"], new: Float[Tensor, "batch window heads dim"]) -> None:
        """Write the keys or values of the step's codes."""
        if isinstance(self.positions, slice):
            cache[:, :, self.positions] = new.transpose(1, 2)
        else:
            cache[self.batch, :, self.positions[:, 0]] = new[:, 0]

    def attend(self, query: Float[Tensor, "batch window heads dim"], keys: Tensor, values: Tensor) -> Tensor:
        """Return attention's output, [batch · window, width]; batched products are faster here than torch's own attention."""
        batch, window, heads, dim = query.shape
        k, v = (cache.flatten(0, 1)[:, : self.read] for cache in (keys, values))
        scores = torch.bmm(query.transpose(1, 2).reshape(batch * heads, window, dim), k.transpose(1, 2))
        if self.bias is not None:
            scores.view(batch, heads, window, self.read).add_(self.bias)
        attended = torch.bmm(scores.softmax(-1), v).view(batch, heads, window, dim)
        return attended.transpose(1, 2).reshape(batch * window, heads * dim)


def _range(first: int, end: int) -> Tensor:
    return torch.arange(first, end, device="cpu")  # whatever torch's default device is


def _bias(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape, dtype=torch.float32, device="cpu").masked_fill_(~visible, -torch.inf)


class _Norm:
    def __init__(self, norm: nn.LayerNorm) -> None:
        self.shape, self.weight, self.bias, self.eps = norm.normalized_shape, norm.weight.detach(), norm.bias.detach(), norm.eps

    def __call__(self, x: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class _PackedBlock:
    def __init__(self, block: TransformerBlock, dtype: torch.dtype) -> None:
        self.heads, width = block.heads, block.qkv.in_features
        scale = torch.ones(3 * width, device=block.qkv.weight.device)
        scale[:width] = (width // self.heads) ** -0.5  # of the scores, on the queries; exact for heads of 16 or 64
        self.qkv = PackedLinear(block.qkv.weight.detach() * scale[:, None], block.qkv.bias.detach() * scale, dtype)
        self.out, self.up, self.down = (
            PackedLinear(layer.weight, layer.bias, dtype) for layer in (block.out, block.up, block.down)
        )
        self.attention_norm, self.norm = _Norm(block.attention_norm), _Norm(block.norm)

    def __call__(self, h: Float[Tensor, "rows width"], keys: Tensor, values: Tensor, step: _Step) -> Tensor:
        qkv = self.qkv(h)[: step.rows]
        query, key, value = qkv.view(-1, step.window, 3, self.heads, h.shape[1] // self.heads).unbind(2)
        step.write(keys, key)
        step.write(values, value)
        h = self.attention_norm(self.out.add(step.pad(step.attend(query, keys, values)), h))
        return self.norm(self.down.add(self.up.relu(h), h))
