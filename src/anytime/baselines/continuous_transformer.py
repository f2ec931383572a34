"""A Transformer over a sequence of real values, with a mixture of logistics as its head (Appendix D).

p(values) = Π p(value_i | values_{<i}) is a density. The network sees standardised values; the likelihood is corrected for it
and is in the values' own unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.baselines.logistic_mixture import LogisticMixture, log_density, mixture_parameter_count, sample_real
from anytime.core.errors import UserError
from anytime.core.random import uniform
from anytime.priors.transformer import KVCache, TransformerBlock, TransformerConfig

MIN_LOG_SCALE = -10.0
"""Bound of a standardised component: at a spread of 80 levels, 0.004 of a level."""
TAIL = 0.001
"""Fraction of the values beyond either end of the range that half of the components cover."""


@dataclass(frozen=True, kw_only=True)
class ContinuousConfig:
    """Shape of the network; the defaults are the paper's Transformer."""

    length: int
    """Number of values."""
    layers: int = 6
    width: int = 512
    """Size of the embedding."""
    hidden: int = 2048
    """Size of the feed-forward layer."""
    heads: int = 8
    dropout: float = 0.1
    mixtures: int = 10
    """Logistic components in the mixture of each value."""

    def __post_init__(self) -> None:
        if self.mixtures < 1:
            raise UserError(f"`prior.mixtures` must be at least 1, not {self.mixtures}")
        _ = self.block  # checks the rest

    @property
    def block(self) -> TransformerConfig:
        """Config of the Transformer blocks."""
        return TransformerConfig(
            length=self.length, codebook_size=1, layers=self.layers, width=self.width, hidden=self.hidden,
            heads=self.heads, dropout=self.dropout,
        )  # fmt: skip


class ContinuousTransformer(nn.Module):
    """A causal Transformer over real values."""

    shift: Tensor  # [length]
    scale: Tensor  # [length]
    component_means: Tensor  # [mixtures], of standardised values
    component_scales: Tensor  # [mixtures]

    def __init__(self, config: ContinuousConfig) -> None:
        super().__init__()
        self.config = config
        self.start_symbol = nn.Parameter(torch.randn(config.width) * config.width**-0.5)
        # Elementwise, not a linear layer: autocast would round the value to the eight bits of bfloat16.
        self.slope = nn.Parameter(torch.randn(config.width))
        self.offset = nn.Parameter(torch.randn(config.width))
        self.embed = nn.Linear(config.width, config.width)
        self.positions = nn.Embedding(config.length, config.width)
        self.embedding_norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config.block) for _ in range(config.layers))
        self.head = nn.Linear(config.width, mixture_parameter_count(1, config.mixtures))
        self.register_buffer("shift", torch.zeros(config.length))
        self.register_buffer("scale", torch.ones(config.length))
        self.register_buffer("component_means", torch.linspace(-2, 2, config.mixtures))
        self.register_buffer("component_scales", torch.ones(config.mixtures))
        self.apply(self._initialise)
        self.init_positions(torch.arange(config.length)[:, None])
        with torch.no_grad():  # every mixture starts near the components as they are
            self.head.weight.mul_(0.1)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

    @property
    def length(self) -> int:
        """Number of values."""
        return self.config.length

    @torch.no_grad()
    def init_positions(self, coordinates: Int[Tensor, "length axes"]) -> None:
        """Let the learned positions start as sinusoids of each value's coordinates.

        A shift along an axis is then a linear map, so that attention soon finds a value's neighbours.
        """
        if not self.positions.weight.is_meta:  # sizes alone are asked for
            self.positions.weight.copy_(sinusoids(coordinates, self.config.width))

    def standardise(self, shift: Float[Tensor, " length"], scale: Float[Tensor, " length"]) -> None:
        """Set what is subtracted from the values of every position, and what they are divided by."""
        self.shift.copy_(shift)
        self.scale.copy_(scale)

    def fit_components(self, values: Float[Tensor, "n length"]) -> None:
        """Fit the components, in whose units the head moves a mixture, to the distribution of all values.

        A component of the head moves by multiples of its own width. So a spike one level wide stays in place while a wide
        component moves by many levels, and rounding in the network does not blur it.
        """
        means, scales = quantile_components(self._standard(values).flatten(), self.config.mixtures)
        self.component_means.copy_(means)
        self.component_scales.copy_(scales)

    def _standard(self, values: Float[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix"]:
        return (values - self.shift[: values.shape[1]]) / self.scale[: values.shape[1]]

    def _embed_values(self, standard: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time width"]:
        out: Tensor = self.embed(F.relu(standard[..., None] * self.slope + self.offset))
        return out

    def _add_positions(self, h: Float[Tensor, "batch time width"], first: int) -> Float[Tensor, "batch time width"]:
        embedded: Tensor = self.dropout(self.embedding_norm(h + self.positions.weight[first : first + h.shape[1]]))
        return embedded

    def forward(self, values: Float[Tensor, "batch prefix"]) -> LogisticMixture:
        """Return the mixture of every standardised value given those before it; the first sees the start symbol only."""
        begin = self.start_symbol.expand(len(values), 1, -1)
        h = self._add_positions(torch.cat([begin, self._embed_values(self._standard(values)[:, :-1])], 1), 0)
        for block in self.blocks:
            assert isinstance(block, TransformerBlock)
            h = block.apply_attention(h, F.scaled_dot_product_attention(*block.qkv_heads(h), is_causal=True))
        return self._mixture(h)

    def _mixture(self, h: Float[Tensor, "*batch width"]) -> LogisticMixture:
        # Not in bfloat16: one level of a pixel is a hundredth of its spread, and eight bits would round the mean.
        with torch.autocast(h.device.type, enabled=False):
            parameters = self.head(h.to(self.head.weight.dtype)).unflatten(-1, (3, 1, -1))
            weights, moves, log_scales = parameters.unbind(-3)
            means = self.component_means + self.component_scales * moves
            log_scales = (self.component_scales.log() + log_scales).clamp_min(MIN_LOG_SCALE)
            return LogisticMixture(weights[..., 0, :], means, log_scales, weights[..., :0, :])

    def log_likelihood(self, values: Float[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix"]:
        """Return log p(value_i | values_{<i}) in nats, a density in the values' own unit."""
        return log_density(self(values), self._standard(values)) - self.scale[: values.shape[1]].log()

    def bits_per_dim(self, values: Float[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        """Return −log₂ p(values) / length. In units of one of 256 levels it bounds the bits per pixel value."""
        return -self.log_likelihood(values).mean(1) / math.log(2)

    def start(self, batch: int) -> KVCache:
        """Return an empty KV cache for `batch` rows, allocated once for all steps."""
        c, weight = self.config, self.slope
        shape = (c.layers, batch, c.heads, c.length, c.width // c.heads)
        position = torch.zeros(batch, dtype=torch.long, device=weight.device)
        return KVCache(weight.new_zeros(shape), weight.new_zeros(shape), position, 0)

    def step(self, values: Float[Tensor, " batch"] | None, state: KVCache) -> tuple[LogisticMixture, KVCache]:
        """Return the mixture of the next standardised value, given the last one (None before the first)."""
        if state.max_position >= self.length:
            raise ValueError(f"all {self.length} values are sampled; there is no further step")
        index, max_position = state.max_position, state.max_position + 1
        if values is None:
            h = self.start_symbol.expand(len(state.position), 1, -1)
        else:
            before = (values - self.shift[index - 1]) / self.scale[index - 1]
            h = self._embed_values(before[:, None])
        h = self._add_positions(h, index)
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, TransformerBlock)
            query, key, value = block.qkv_heads(h)
            keys, cached_values = state.keys[layer], state.values[layer]
            keys[:, :, index], cached_values[:, :, index] = key[:, :, 0], value[:, :, 0]
            h = block.apply_attention(
                h, F.scaled_dot_product_attention(query, keys[:, :, :max_position], cached_values[:, :, :max_position])
            )
        return self._mixture(h[:, 0]), KVCache(state.keys, state.values, state.position + 1, max_position)

    @torch.no_grad()
    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n length"]:
        """Sample value by value; a value depends on the seed, its row, its position and the values before it."""
        state, device = self.start(n), self.slope.device
        rows = torch.arange(n, dtype=torch.int32, device=device)[:, None]
        counter = torch.arange(self.config.mixtures + 1, dtype=torch.int32, device=device)
        samples: list[Tensor] = []
        for position in range(self.length):
            mixture, state = self.step(samples[-1] if samples else None, state)
            standard = sample_real(mixture, uniform(seed, rows, position, counter))
            samples.append(self.shift[position] + self.scale[position] * standard)
        return torch.stack(samples, 1)


def sinusoids(coordinates: Int[Tensor, "length axes"], width: int) -> Float[Tensor, "length width"]:
    """Return sines and cosines of the coordinates, with wavelengths from 2π to eight π times the size of the axis."""
    each = max(1, width // (2 * coordinates.shape[1]))
    parts = []
    for axis in coordinates.unbind(1):
        frequencies = (4.0 * (int(axis.max()) + 1)) ** (-torch.arange(each) / each)
        angles = axis[:, None] * frequencies
        parts += [angles.sin(), angles.cos()]
    found = torch.cat(parts, 1)[:, :width]
    return F.pad(found, (0, width - found.shape[1]))


def quantile_components(values: Float[Tensor, " n"], mixtures: int) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """Return means and scales of components that cover a distribution: half at its quantiles, half evenly over its range.

    Components at quantiles resolve spikes; those over the range reach the rare values between them.
    """
    at_quantiles = (mixtures + 1) // 2
    edges = torch.linspace(TAIL, 1 - TAIL, 2 * at_quantiles + 1, device=values.device)
    quantiles = values.sort().values[(edges * (len(values) - 1)).long()]
    widths = quantiles[2::2] - quantiles[:-2:2]
    over_range = mixtures - at_quantiles
    step = (quantiles[-1] - quantiles[0]) / max(1, over_range)
    spread = quantiles[0] + step * (torch.arange(over_range, device=values.device) + 0.5)
    scales = torch.cat([widths / 4, (step / 3).expand(over_range)])
    return torch.cat([quantiles[1::2], spread]), scales.clamp_min(math.exp(MIN_LOG_SCALE))
