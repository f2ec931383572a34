"""Autoregressive models of the codes: a choice of configs, and the network that each one describes."""

from __future__ import annotations

from anytime.priors.pixelcnn import PixelCNN, PixelCNNConfig
from anytime.priors.transformer import Transformer, TransformerConfig

PriorConfig = TransformerConfig | PixelCNNConfig
Network = Transformer | PixelCNN


def build(config: PriorConfig) -> Network:
    """The prior that a config describes, with fresh weights.

    >>> type(build(PixelCNNConfig(length=4, codebook_size=8, side=2, layers=1, width=4, head=8))).__name__
    'PixelCNN'
    """
    match config:
        case TransformerConfig():
            return Transformer(config)
        case PixelCNNConfig():
            return PixelCNN(config)
