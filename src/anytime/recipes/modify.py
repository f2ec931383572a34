"""A recipe with one thing changed: another prior (Appendix C.2), another number of codes (Appendix C.5)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from anytime.core.errors import UserError
from anytime.priors import PriorConfig, parameter_count
from anytime.priors.lstm import LSTMConfig, matching_width
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.priors.transformer import TransformerConfig
from anytime.recipes.presets import RunConfig
from anytime.training.stages import PIXELCNN, PRIOR

PriorType = Literal["transformer", "lstm", "pixelcnn"]

_CONFIG_TYPES: dict[PriorType, type] = {"transformer": TransformerConfig, "lstm": LSTMConfig, "pixelcnn": PixelCNNConfig}


def with_prior(config: RunConfig, prior_type: PriorType) -> RunConfig:
    """The recipe with another kind of prior on the same codes, for the same number of epochs.

    The LSTM has the Transformer's number of weights and its schedule; the PixelCNN is the original VQ-VAE's, on the smallest
    square that holds the codes: 70 of them on 9 × 9.
    """
    old = config.model.prior
    if isinstance(old, _CONFIG_TYPES[prior_type]):
        return config
    epochs, length, codebook_size = config.prior.epochs, old.length, old.codebook_size
    transformer = (
        old if isinstance(old, TransformerConfig) else TransformerConfig(length=length, codebook_size=codebook_size)
    )  # fmt: skip
    stage = replace(config.prior if isinstance(old, TransformerConfig) else PRIOR, epochs=epochs)
    prior: PriorConfig
    match prior_type:
        case "transformer":
            prior = transformer
        case "lstm":
            width = matching_width(parameter_count(transformer), codebook_size)
            prior = LSTMConfig(length=length, codebook_size=codebook_size, width=width, dropout=transformer.dropout)
        case "pixelcnn":
            prior = PixelCNNConfig(length=length, codebook_size=codebook_size, side=square_side(length))
            stage = replace(PIXELCNN, epochs=epochs)
    extra_codes = 0 if prior_type == "pixelcnn" else config.extra_codes  # a square of more codes has another side
    return replace(config, model=replace(config.model, prior=prior), prior=stage, extra_codes=extra_codes)


def with_length(config: RunConfig, length: int) -> RunConfig:
    """The recipe for another number of codes: as many channels of the feature map, a prior of that length, all else equal."""
    model = config.model
    if length < 1:
        raise UserError(f"--length must be at least 1, not {length}")
    if model.autoencoder.layout != "channel":
        raise UserError(
            f"--length {length} cannot be: this model has a code for each of the {model.autoencoder.length} places of its "
            "feature map; use channel-wise codes"
        )
    prior = model.prior
    if isinstance(prior, PixelCNNConfig):
        prior = replace(prior, length=length, side=square_side(length))
    else:
        prior = replace(prior, length=length)
    return replace(config, model=replace(model, autoencoder=replace(model.autoencoder, length=length), prior=prior))


def square_side(length: int) -> int:
    """Side of the smallest square with room for so many codes.

    >>> square_side(70), square_side(81), square_side(82)
    (9, 9, 10)
    """
    return math.isqrt(length - 1) + 1
