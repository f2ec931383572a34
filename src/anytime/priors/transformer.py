"""The Transformer prior of Appendix E.1: post-norm, ReLU, learned positions, tied input and output embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Shape of the network; the defaults are the paper's."""

    length: int
    """K, full number of codes."""
    codebook_size: int
    """C, values a code may take."""
    layers: int = 6
    width: int = 512
    """Size of the embedding."""
    hidden: int = 2048
    """Size of the feed-forward layer."""
    heads: int = 8
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if min(self.length, self.codebook_size, self.layers, self.width, self.hidden, self.heads) < 1:
            raise UserError("`prior` length, codebook_size, layers, width, hidden and heads must all be at least 1")
        if self.width % self.heads:
            raise UserError(f"`prior.heads` ({self.heads}) must divide `prior.width` ({self.width})")
        if not 0 <= self.dropout < 1:
            raise UserError(f"`prior.dropout` must be in [0, 1), not {self.dropout}")

    @property
    def summary(self) -> str:
        """The network in a few words."""
        return f"Transformer: {self.layers} layers, width {self.width}, {self.heads} heads"


@dataclass(frozen=True, slots=True)
class KVCache:
    """The KV cache: keys and values of the codes so far."""

    keys: Tensor  # [layers, batch, heads, length, head_dim]
    values: Tensor
    position: Tensor  # [batch], the number of steps of each row
    max_position: int  # the largest position, which bounds what attention reads, known without asking the device
    is_uniform: bool = False  # whether all rows are known to be at `max_position`


class TransformerBlock(nn.Module):
    """Self-attention, then a feed-forward layer, each followed by a residual sum and a layer norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.attention_norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def qkv_heads(self, h: Float[Tensor, "batch time width"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each [batch, heads, time, head_dim]."""
        query, key, value = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value

    def apply_attention(
        self, h: Float[Tensor, "batch time width"], attended: Float[Tensor, "batch heads time head_dim"]
    ) -> Float[Tensor, "batch time width"]:
        """Return the block's output, given the output of attention."""
        h = self.attention_norm(h + self.dropout(self.out(attended.transpose(1, 2).flatten(2))))
        out: Tensor = self.norm(h + self.dropout(self.down(F.relu(self.up(h)))))
        return out


class Transformer(nn.Module):
    """A causal Transformer over the codes."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, self.length, self.codebook_size = config, config.length, config.codebook_size
        self.tokens = nn.Embedding(config.codebook_size + 1, config.width)  # the last row is the start symbol
        self.positions = nn.Embedding(config.length, config.width)
        self.embedding_norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

    def block_list(self) -> list[TransformerBlock]:
        """Return the blocks, typed."""
        return [block for block in self.blocks if isinstance(block, TransformerBlock)]

    def _embed(self, tokens: Int[Tensor, "batch time"], positions: Int[Tensor, "..."]) -> Float[Tensor, "batch time width"]:
        embedded: Tensor = self.dropout(self.embedding_norm(self.tokens(tokens) + self.positions(positions)))
        return embedded

    def _logits(self, h: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch codebook_size"]:
        return F.linear(h, self.tokens.weight[:-1])

    def forward(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix codebook_size"]:
        """Return the logits of every code given those before it; position 0 sees the start symbol only."""
        tokens = F.pad(codes[:, :-1], (1, 0), value=self.codebook_size)
        h = self._embed(tokens, torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.block_list():
            h = block.apply_attention(h, F.scaled_dot_product_attention(*block.qkv_heads(h), is_causal=True))
        return self._logits(h)

    def start(self, batch: int) -> KVCache:
        """Return an empty KV cache for `batch` rows, allocated once for all steps."""
        c, weight = self.config, self.tokens.weight
        shape = (c.layers, batch, c.heads, c.length, c.width // c.heads)
        position = torch.zeros(batch, dtype=torch.long, device=weight.device)
        # zeros, not empty: a row at a lower position attends to masked entries, and 0 · NaN is NaN.
        return KVCache(weight.new_zeros(shape), weight.new_zeros(shape), position, 0)

    def step(
        self, codes: Int[Tensor, " batch"] | None, state: KVCache
    ) -> tuple[Float[Tensor, "batch codebook_size"], KVCache]:  # fmt: skip
        """Return the logits of the next code. The cache is updated in place: use the state returned, not the one given."""
        if state.max_position >= self.length:
            raise ValueError(f"all {self.length} codes are sampled; there is no further step")
        if codes is None:
            return self._first_step(state)
        position, max_position = state.position, state.max_position + 1
        rows = torch.arange(len(position), device=position.device)
        visible = (torch.arange(max_position, device=position.device) <= position[:, None])[:, None, None]
        h = self._embed(codes[:, None], position[:, None])
        for layer, block in enumerate(self.block_list()):
            query, key, value = block.qkv_heads(h)
            keys, values = state.keys[layer], state.values[layer]
            keys[rows, :, position] = key[:, :, 0]
            values[rows, :, position] = value[:, :, 0]
            attended = F.scaled_dot_product_attention(
                query, keys[:, :, :max_position], values[:, :, :max_position], attn_mask=visible
            )
            h = block.apply_attention(h, attended)
        return self._logits(h[:, 0]), KVCache(state.keys, state.values, position + 1, max_position)

    def _first_step(self, state: KVCache) -> tuple[Float[Tensor, "batch codebook_size"], KVCache]:
        """Step at the start symbol, which is the same in every row and computed once."""
        batch, device = len(state.position), state.position.device
        start = torch.full((1, 1), self.codebook_size, device=device)
        h = self._embed(start, torch.zeros_like(start))
        for layer, block in enumerate(self.block_list()):
            _, key, value = block.qkv_heads(h)
            state.keys[layer, :, :, 0], state.values[layer, :, :, 0] = key[:, :, 0], value[:, :, 0]
            h = block.apply_attention(h, value)  # attention over one position returns its value
        return self._logits(h[:, 0]).expand(batch, -1), KVCache(state.keys, state.values, state.position + 1, 1)
