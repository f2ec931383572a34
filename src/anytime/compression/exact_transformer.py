"""The Transformer prior in exact arithmetic: the coder's own pass, the same integers on every machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.compression.exact import Array, ExactLinear, ExactNorm, exp, frequencies, quantize, sum_bits
from anytime.priors.transformer import Transformer, TransformerBlock

VALUE_BITS, VALUE_SCALE = 26, 2.0**-18
"""Attention's values are multiples of 2^−18 between ±2^8. All positions share this scale, so that they can be summed."""


@dataclass(slots=True)
class ExactState:
    """The KV cache in integers. `step` updates it in place."""

    keys: Array  # [layers, batch, heads, length, head_dim]
    key_scales: Array  # [layers, batch, heads, length, 1]
    values: Array  # [layers, batch, heads, length, head_dim]
    position: int


class ExactBlock:
    """A block of the Transformer."""

    def __init__(self, block: TransformerBlock) -> None:
        self.heads = block.heads
        self.qkv, self.out, self.up, self.down = map(_linear, (block.qkv, block.out, block.up, block.down))
        self.attention_norm, self.norm = _norm(block.attention_norm), _norm(block.norm)

    def __call__(self, h: Float[np.ndarray, "batch width"], state: ExactState, layer: int) -> Float[np.ndarray, "batch width"]:
        """Return the block's output at one position, whose key and value join the state."""
        heads = self.qkv(h).reshape(len(h), 3, self.heads, -1)
        h = self.attention_norm(h + self.out(_attend(heads, state, layer)))
        return self.norm(h + self.down(np.maximum(self.up(h), 0.0)))


class ExactTransformer:
    """Probabilities of the next code as integers, one position at a time."""

    def __init__(self, prior: Transformer) -> None:
        self.config = prior.config
        tokens = _array(prior.tokens.weight)
        self.tokens, self.positions = tokens.astype(np.float64), _array(prior.positions.weight).astype(np.float64)
        self.embedding_norm = _norm(prior.embedding_norm)
        self.blocks = [ExactBlock(block) for block in prior.block_list()]
        self.logits = ExactLinear(tokens[:-1])

    def start(self, batch: int) -> ExactState:
        """Return the state before the first code."""
        c = self.config
        shape = (c.layers, batch, c.heads, c.length)
        head_dim = c.width // c.heads
        return ExactState(np.zeros((*shape, head_dim)), np.zeros((*shape, 1)), np.zeros((*shape, head_dim)), 0)

    def step(
        self, codes: Int[np.ndarray, " batch"] | None, state: ExactState
    ) -> Int[np.ndarray, "batch codebook_size"]:  # fmt: skip
        """Return the frequencies of the next code, given the previous one (None before the first)."""
        batch = state.keys.shape[1]
        tokens = np.full(batch, self.config.codebook_size) if codes is None else codes
        h = self.embedding_norm(self.tokens[tokens] + self.positions[state.position])
        for layer, block in enumerate(self.blocks):
            h = block(h, state, layer)
        state.position += 1
        return frequencies(self.logits(h))


def _attend(
    heads: Float[np.ndarray, "batch 3 heads head_dim"], state: ExactState, layer: int
) -> Float[np.ndarray, "batch width"]:  # fmt: skip
    """Return softmax(q K / √d) V over all positions so far; every sum is over integers."""
    position, head_dim = state.position, heads.shape[-1]
    bits = sum_bits(head_dim) // 2
    query, key = quantize(heads[:, 0], bits), quantize(heads[:, 1], bits)
    limit = float(1 << VALUE_BITS)
    state.keys[layer, :, :, position], state.key_scales[layer, :, :, position] = key.integers, key.scale
    state.values[layer, :, :, position] = np.clip(np.rint(heads[:, 2] / VALUE_SCALE), -limit, limit)
    seen = slice(0, position + 1)
    products = (state.keys[layer, :, :, seen] @ query.integers[..., None])[..., 0]
    scores = products * state.key_scales[layer, :, :, seen, 0] * query.scale / math.sqrt(head_dim)
    relative = exp(scores - scores.max(-1, keepdims=True))
    weights = np.rint(relative * float(1 << (sum_bits(position + 1) - VALUE_BITS)))
    mixed = (weights[..., None, :] @ state.values[layer, :, :, seen])[..., 0, :]
    attended: Array = mixed / weights.sum(-1, keepdims=True) * VALUE_SCALE
    return attended.reshape(len(heads), -1)


def _array(parameter: Tensor) -> Array:
    """Return weights as float32 on the CPU."""
    found: Array = parameter.detach().float().cpu().numpy()
    return found


def _linear(layer: nn.Linear) -> ExactLinear:
    return ExactLinear(_array(layer.weight), _array(layer.bias))


def _norm(layer: nn.LayerNorm) -> ExactNorm:
    return ExactNorm(_array(layer.weight).astype(np.float64), _array(layer.bias).astype(np.float64), layer.eps)
