"""The LSTM prior of Appendix C.2, whose state has a fixed size.

Tied embeddings and dropout are as in the Transformer, so that the two differ only in how they use earlier codes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from anytime.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """Shape of the network; `matching_width` returns the width for a number of weights."""

    length: int
    """K, full number of codes."""
    codebook_size: int
    """C, values a code may take."""
    layers: int = 3
    width: int
    """Size of the embedding and of every layer's state."""
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if min(self.length, self.codebook_size, self.layers, self.width) < 1:
            raise UserError("`prior` length, codebook_size, layers and width must all be at least 1")
        if not 0 <= self.dropout < 1:
            raise UserError(f"`prior.dropout` must be in [0, 1), not {self.dropout}")

    @property
    def summary(self) -> str:
        """The network in a few words."""
        return f"LSTM: {self.layers} layers, width {self.width}"


def matching_width(parameters: int, codebook_size: int, layers: int = 3) -> int:
    """Return the width, a multiple of 8, whose LSTM has closest to `parameters` weights.

    With embeddings (C + 1) w and, for each layer, two w × 4w matrices and two biases of 4w, a network of width w has
    8 layers w² + (8 layers + C + 1) w weights: the positive root of a quadratic.

    >>> matching_width(19_463_680, codebook_size=1000)  # the paper's Transformer on CIFAR-10
    880
    """
    square, linear = 8 * layers, 8 * layers + codebook_size + 1
    width = (math.sqrt(linear**2 + 4 * square * parameters) - linear) / (2 * square)
    return max(8, 8 * round(width / 8))  # tensor cores need multiples of 8


@dataclass(frozen=True, slots=True)
class LSTMState:
    """Hidden and cell state of every layer."""

    hidden: Tensor  # [layers, batch, width]
    cell: Tensor  # [layers, batch, width]
    position: Tensor  # [batch], the number of steps of each row
    max_position: int  # the largest position, known without asking the device


class LSTM(nn.Module):
    """A stack of LSTM layers over the codes."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config, self.length, self.codebook_size = config, config.length, config.codebook_size
        self.tokens = nn.Embedding(config.codebook_size + 1, config.width)  # the last row is the start symbol
        self.dropout = nn.Dropout(config.dropout)
        # One module per layer, with our own dropout between them: a resumed run could not restore cuDNN's generator.
        self.layers = nn.ModuleList(nn.LSTM(config.width, config.width, batch_first=True) for _ in range(config.layers))
        nn.init.normal_(self.tokens.weight, std=config.width**-0.5)
        for layer in self._layers():
            _initialise(layer)

    def _layers(self) -> list[nn.LSTM]:
        return [layer for layer in self.layers if isinstance(layer, nn.LSTM)]

    def _logits(self, h: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch codebook_size"]:
        return F.linear(h, self.tokens.weight[:-1])

    def forward(self, codes: Int[Tensor, "batch prefix"]) -> Float[Tensor, "batch prefix codebook_size"]:
        """Return the logits of every code given those before it; position 0 sees the start symbol only."""
        h: Tensor = self.dropout(self.tokens(F.pad(codes[:, :-1], (1, 0), value=self.codebook_size)))
        for layer in self._layers():
            h = self.dropout(layer(h)[0])
        return self._logits(h)

    def start(self, batch: int) -> LSTMState:
        """Return a zero state for `batch` rows."""
        weight = self.tokens.weight
        empty = weight.new_zeros(self.config.layers, batch, self.config.width)
        return LSTMState(empty, empty.clone(), torch.zeros(batch, dtype=torch.long, device=weight.device), 0)

    def step(
        self, codes: Int[Tensor, " batch"] | None, state: LSTMState
    ) -> tuple[Float[Tensor, "batch codebook_size"], LSTMState]:  # fmt: skip
        """Return the logits of the next code; every step costs the same."""
        if state.max_position >= self.length:
            raise ValueError(f"all {self.length} codes are sampled; there is no further step")
        if codes is None:
            codes = torch.full_like(state.position, self.codebook_size)
        h: Tensor = self.dropout(self.tokens(codes[:, None]))
        hidden, cell = [], []
        for index, layer in enumerate(self._layers()):
            before = state.hidden[index : index + 1].contiguous(), state.cell[index : index + 1].contiguous()
            h, (new_hidden, new_cell) = layer(h, before)
            h = self.dropout(h)
            hidden.append(new_hidden)
            cell.append(new_cell)
        return self._logits(h[:, 0]), LSTMState(torch.cat(hidden), torch.cat(cell), state.position + 1, state.max_position + 1)


def _initialise(layer: nn.LSTM) -> None:
    """Initialise the weights by Xavier's rule per gate, biases to 0, the forget gate's to 1 (Jozefowicz et al. 2015)."""
    for name, parameter in layer.named_parameters():
        if name.startswith("weight"):
            for gate in parameter.chunk(4):
                nn.init.xavier_uniform_(gate)
        else:
            nn.init.zeros_(parameter)
        if name.startswith("bias_ih"):
            nn.init.ones_(parameter.chunk(4)[1])
