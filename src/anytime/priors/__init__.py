"""Autoregressive models of the codes: a choice of configs, and the network that each one describes."""

from __future__ import annotations

import torch

from anytime.priors.lstm import LSTM, LSTMConfig
from anytime.priors.pixelcnn import PixelCNN, PixelCNNConfig
from anytime.priors.transformer import Transformer, TransformerConfig

PriorConfig = TransformerConfig | PixelCNNConfig | LSTMConfig
PriorNetwork = Transformer | PixelCNN | LSTM


def build(config: PriorConfig) -> PriorNetwork:
    """The prior that a config describes, with fresh weights.

    >>> type(build(PixelCNNConfig(length=4, codebook_size=8, side=2, layers=1, width=4, head=8))).__name__
    'PixelCNN'
    """
    match config:
        case TransformerConfig():
            return Transformer(config)
        case PixelCNNConfig():
            return PixelCNN(config)
        case LSTMConfig():
            return LSTM(config)


def parameter_count(config: PriorConfig) -> int:
    """How many weights the prior has; none of them is allocated.

    >>> parameter_count(TransformerConfig(length=70, codebook_size=1000))
    19463680
    """
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())
