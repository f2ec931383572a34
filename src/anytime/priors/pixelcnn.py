"""The gated PixelCNN of the original VQ-VAE: codes on a square map, in raster order (van den Oord et al. 2016, Section 2).

There are two stacks of gated convolutions. The vertical stack sees every row above. The horizontal stack sees the positions to
the left and, through a link, the vertical stack. Together they see all earlier codes, without a blind spot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.core.errors import UserError

FIRST_KERNEL = 7  # of the first layer, which does not see its own position (mask A)
KERNEL = 3  # of all others, which see it (mask B)
MARGIN = FIRST_KERNEL // 2


@dataclass(frozen=True, kw_only=True)
class PixelCNNConfig:
    """Shape of the network; the defaults are those of the paper's baseline."""

    length: int
    """K, full number of codes."""
    codebook_size: int
    """C, values a code may take."""
    side: int
    """Height and width of the map that the codes fill in raster order; positions left over at the end stay empty."""
    layers: int = 15
    width: int = 64
    """Channels of each stack."""
    head: int = 512
    """Size of the layer before the logits."""
    dropout: float = 0.0
    """Of the embedding and of every layer's output before the residual sum, as in the Transformer."""

    def __post_init__(self) -> None:
        if min(self.length, self.codebook_size, self.side, self.layers, self.width, self.head) < 1:
            raise UserError("`prior` length, codebook_size, side, layers, width and head must all be at least 1")
        if not 0 <= self.dropout < 1:
            raise UserError(f"`prior.dropout` must be in [0, 1), not {self.dropout}")
        if self.side**2 < self.length:
            raise UserError(f"a map of {self.side} × {self.side} is too small for {self.length} codes; raise `prior.side`")
        if self.side > self.length:  # the weights do not bound its size
            raise UserError(f"`prior.side` ({self.side}) must not be larger than the {self.length} codes of the map")

    @property
    def summary(self) -> str:
        """The network in a few words."""
        return f"PixelCNN on {self.side} × {self.side}: {self.layers} layers, width {self.width}"


def matching_width(parameters: int, config: PixelCNNConfig) -> int:
    """Return the width, a multiple of 8, whose PixelCNN has closest to `parameters` weights, all else as in `config`.

    The first layer has 53 w² + 7 w weights, every other 21 w² + 7 w. With embeddings C w and the head, a network of width w has
    (21 layers + 32) w² + (7 layers + C + head) w + head + (head + 1) C weights: the positive root of a quadratic.

    >>> matching_width(19_463_680, PixelCNNConfig(length=70, codebook_size=1000, side=9))  # as the Transformer on CIFAR-10
    232
    """
    square, linear = 21 * config.layers + 32, 7 * config.layers + config.codebook_size + config.head
    free = max(0, parameters - config.head - (config.head + 1) * config.codebook_size)
    width = (math.sqrt(linear**2 + 4 * square * free) - linear) / (2 * square)
    return max(8, 8 * round(width / 8))  # tensor cores need multiples of 8


@dataclass(frozen=True, slots=True)
class PixelCNNState:
    """Intermediate results of both stacks; rows of a batch may be at different positions."""

    embedded: Tensor  # [batch, MARGIN + side, MARGIN + side, width], embedded codes, below and right of an empty margin
    above: Tensor  # [layers - 1, batch, width, side], each layer's last row of the vertical stack
    links: Tensor  # [layers, batch, 2 width, side], the vertical stack's output for the current row
    left: Tensor  # [layers - 1, batch, width], each layer's horizontal stack at the previous position
    position: Tensor  # [batch], the number of steps of each row
    host_positions: frozenset[int]  # the values of `position`, known without asking the device


def gated_activation(h: Float[Tensor, "batch channel ..."]) -> Float[Tensor, "batch half ..."]:
    """Return tanh(a) · σ(b), where a and b are the halves of h along its channels."""
    a, b = h.chunk(2, dim=1)
    return torch.tanh(a) * torch.sigmoid(b)


def conv_at_position(layer: nn.Conv2d, window: Float[Tensor, "batch channel ..."]) -> Float[Tensor, "batch out"]:
    """Apply a convolution at one position: a linear map of its window."""
    return F.linear(window.flatten(1), layer.weight.flatten(1), layer.bias)


class GatedLayer(nn.Module):
    """One gated layer of both stacks. The caller pads above and to the left."""

    def __init__(self, width: int, kernel: int, first: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.radius, self.first = kernel // 2, first
        seen = (
            self.radius if first else self.radius + 1
        )  # rows above (positions to the left), and its own except in the first layer
        self.vertical = nn.Conv2d(width, 2 * width, (seen, kernel), padding=(0, self.radius))
        self.horizontal = nn.Conv2d(width, 2 * width, (1, seen))
        self.link = nn.Conv2d(2 * width, 2 * width, 1)
        self.out = nn.Conv2d(width, width, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, v: Float[Tensor, "batch width height side"], h: Float[Tensor, "batch width height side"]
    ) -> tuple[Float[Tensor, "batch width height side"], Float[Tensor, "batch width height side"]]:
        """Run both stacks over whole rows; the first input is shifted by one, so that no position sees itself."""
        shift = -1 if self.first else 0
        above = self.vertical(F.pad(v, (0, 0, self.radius, shift)))
        across = self.horizontal(F.pad(h, (self.radius, shift, 0, 0)))
        new = self.dropout(self.out(gated_activation(across + self.link(above))))
        return gated_activation(above), new if self.first else h + new

    def at(
        self,
        window: Float[Tensor, "batch width seen"],
        link: Float[Tensor, "batch double"],
        h: Float[Tensor, "batch width"] | None,
    ) -> Float[Tensor, "batch width"]:
        """Run the horizontal stack at one position without dropout: `window` of its row, its input `h` there."""
        new = conv_at_position(self.out, gated_activation(conv_at_position(self.horizontal, window) + link))
        return new if h is None else h + new


class PixelCNN(nn.Module):
    """A gated PixelCNN over a square map of codes."""

    def __init__(self, config: PixelCNNConfig) -> None:
        super().__init__()
        self.config, self.length, self.codebook_size = config, config.length, config.codebook_size
        self.tokens = nn.Embedding(config.codebook_size, config.width)
        kernels = [FIRST_KERNEL] + [KERNEL] * (config.layers - 1)
        self.layers = nn.ModuleList(
            GatedLayer(config.width, kernel, index == 0, config.dropout) for index, kernel in enumerate(kernels)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Sequential(nn.Linear(config.width, config.head), nn.ReLU(), nn.Linear(config.head, config.codebook_size))
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            assert module.bias is not None
            nn.init.zeros_(module.bias)

    def _layers(self) -> list[GatedLayer]:
        return [layer for layer in self.layers if isinstance(layer, GatedLayer)]

    def forward(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix codebook_size"]:
        """Return the logits of every code given those before it; the first sees the empty margin only."""
        prefix, side = codes.shape[1], self.config.side
        rows = -(-prefix // side)
        embedded = F.pad(self.dropout(self.tokens(codes)), (0, 0, 0, rows * side - prefix)).unflatten(1, (rows, side))
        v = h = embedded.permute(0, 3, 1, 2)
        for layer in self._layers():
            v, h = layer(v, h)
        logits: Tensor = self.head(h.flatten(2).transpose(1, 2)[:, :prefix])
        return logits

    def start(self, batch: int) -> PixelCNNState:
        """Return an empty state for `batch` rows, allocated once for all steps."""
        c, weight = self.config, self.tokens.weight
        return PixelCNNState(
            embedded=weight.new_zeros(batch, MARGIN + c.side, MARGIN + c.side, c.width),
            above=weight.new_zeros(c.layers - 1, batch, c.width, c.side),
            links=weight.new_zeros(c.layers, batch, 2 * c.width, c.side),
            left=weight.new_zeros(c.layers - 1, batch, c.width),
            position=torch.zeros(batch, dtype=torch.long, device=weight.device),
            host_positions=frozenset({0}),
        )

    def step(
        self, codes: Int[Tensor, " batch"] | None, state: PixelCNNState
    ) -> tuple[Float[Tensor, "batch codebook_size"], PixelCNNState]:  # fmt: skip
        """Return the logits of the next code: one position of the horizontal stack, and the vertical stack if a row begins.

        The state is updated in place: use the one returned, not the one given.
        """
        if max(state.host_positions) >= self.length:
            raise ValueError(f"all {self.length} codes are sampled; there is no further step")
        position, side, margin = state.position, self.config.side, MARGIN
        rows = torch.arange(len(position), device=position.device)
        if codes is not None:
            before = position - 1
            state.embedded[rows, before // side + margin, before % side + margin] = self.tokens(codes)
        if any(position_index % side == 0 for position_index in state.host_positions):
            self._start_rows(state, rows)
        row, column = position // side, position % side
        links = state.links[:, rows, :, column].unbind(1)
        near = column[:, None] + torch.arange(margin, device=column.device)
        window = state.embedded[rows[:, None], row[:, None] + margin, near].transpose(1, 2)
        first, *others = self._layers()
        h = first.at(window, links[0], None)
        # Left of a row's first position is nothing; `left` still holds the end of the row above.
        left = state.left * (column > 0)[:, None]
        for index, layer in enumerate(others):
            state.left[index] = h
            h = layer.at(torch.stack([left[index], h], -1), links[index + 1], h)
        host_positions = frozenset(position_index + 1 for position_index in state.host_positions)
        return self.head(h), PixelCNNState(state.embedded, state.above, state.links, state.left, position + 1, host_positions)

    def _start_rows(self, state: PixelCNNState, rows: Int[Tensor, " batch"]) -> None:
        """Run the vertical stack for the rows of the batch that are at the start of a row of their map."""
        begins = (state.position % self.config.side == 0)[:, None, None]
        above = (state.position // self.config.side)[:, None] + torch.arange(MARGIN, device=rows.device)
        first, *others = self._layers()
        vertical_out = first.vertical(state.embedded[rows[:, None], above][:, :, MARGIN:].permute(0, 3, 1, 2))
        state.links[0] = torch.where(begins, first.link(vertical_out)[:, :, 0], state.links[0])
        for index, layer in enumerate(others):
            v = gated_activation(vertical_out)[:, :, 0]
            vertical_out = layer.vertical(torch.stack([state.above[index], v], 2))
            state.above[index] = torch.where(begins, v, state.above[index])
            state.links[index + 1] = torch.where(begins, layer.link(vertical_out)[:, :, 0], state.links[index + 1])
