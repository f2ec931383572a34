"""Autoregressive priors over the codes, and the function that builds one from its config."""

from __future__ import annotations

import torch

from anytime.priors.lstm import LSTM, LSTMConfig
from anytime.priors.pixelcnn import PixelCNN, PixelCNNConfig
from anytime.priors.transformer import Transformer, TransformerConfig

PriorConfig = TransformerConfig | PixelCNNConfig | LSTMConfig
PriorNetwork = Transformer | PixelCNN | LSTM


def build(config: PriorConfig) -> PriorNetwork:
    """Build the prior of a config, with new weights.

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
    """Return the number of weights of a prior without allocating them.

    >>> parameter_count(TransformerConfig(length=70, codebook_size=1000))
    19463680
    """
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())
