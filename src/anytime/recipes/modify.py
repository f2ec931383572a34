"""Changes of a recipe: scale, truncation, layout (Section 4.3), prior (Appendix C.2), number of codes (Appendix C.5)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from anytime.autoencoders.layout import Layout
from anytime.autoencoders.truncation import Full, Truncation
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core.errors import UserError
from anytime.priors import PriorConfig, lstm, parameter_count, pixelcnn
from anytime.priors.lstm import LSTMConfig
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.priors.transformer import TransformerConfig
from anytime.training.config import SMOKE_EXAMPLES, Config, RunConfig, Scale
from anytime.training.stages import PriorStage

PriorType = Literal["transformer", "lstm", "pixelcnn"]

_SHORT_EPOCHS = {"pretrain": 40, "ordered": 60, "prior": 20, "finetune": 10}
_CONFIG_TYPES: dict[PriorType, type] = {"transformer": TransformerConfig, "lstm": LSTMConfig, "pixelcnn": PixelCNNConfig}


def with_scale(config: RunConfig, scale: Scale) -> RunConfig:
    """Shorten a recipe: "short" is 40 + 60 + 20 + 10 epochs, "smoke" trains small networks on little data."""
    config = replace(config, scale=scale)
    if scale == "smoke":
        return _smoke(config)
    if scale == "full":
        return config
    stages = ((getattr(config, name), name, epochs) for name, epochs in _SHORT_EPOCHS.items())
    shorter = {name: stage and replace(stage, epochs=min(epochs, stage.epochs)) for stage, name, epochs in stages}
    return replace(config, **shorter)


def _smoke(config: RunConfig) -> RunConfig:
    autoencoder, finetune = config.model.autoencoder, config.finetune
    autoencoder = replace(autoencoder, widths=tuple(min(width, 8) for width in autoencoder.widths))
    audio = autoencoder.is_audio
    if audio:  # a sixteenth is one code; few codes keep the decoder's dense layer small
        autoencoder = replace(autoencoder, length=16, quantizer=replace(autoencoder.quantizer, codebook_size=64))
    if autoencoder.network == "image" and autoencoder.blocks:  # here `dim` is a width of the network too, the largest
        autoencoder = replace(autoencoder, dim=16)
    if finetune is not None:
        finetune = replace(
            finetune,
            epochs=2,
            batch=32,
            augmentations=1 if audio else finetune.augmentations,
            width=2,
            prior_samples=min(8, finetune.prior_samples),
        )
    return replace(
        config,
        model=replace(config.model, autoencoder=autoencoder, prior=_smoke_prior(config.model.prior, autoencoder)),
        pretrain=replace(config.pretrain, epochs=2, batch=32),
        ordered=replace(config.ordered, epochs=2, batch=32),
        prior=replace(config.prior, epochs=2, batch=32, augmentations=min(2, config.prior.augmentations)),
        finetune=finetune,
        examples=64 if audio else SMOKE_EXAMPLES,
        checkpoint_seconds=0.0,
        sample_grids=1,
    )


def _smoke_prior(prior: PriorConfig, autoencoder: AutoencoderConfig) -> PriorConfig:
    prior = replace(prior, length=autoencoder.length, codebook_size=autoencoder.quantizer.codebook_size)
    match prior:
        case TransformerConfig():
            return replace(prior, layers=2, width=32, hidden=64, heads=2)
        case PixelCNNConfig():
            return replace(prior, layers=3, width=16, head=32)
        case LSTMConfig():
            return replace(prior, layers=2, width=32)


def with_truncation(config: RunConfig, distribution: Truncation) -> RunConfig:
    """Set the distribution of `keep` after pretraining; `Full` is the unordered baseline, which has no extra codes."""
    finetune = None if config.finetune is None else replace(config.finetune, truncation=distribution, prior_truncation=None)
    extra_codes = 0 if isinstance(distribution, Full) else config.extra_codes
    return replace(config, ordered=replace(config.ordered, truncation=distribution), finetune=finetune, extra_codes=extra_codes)


def with_layout(config: RunConfig, layout: Layout) -> RunConfig:
    """Read the feature map along the other axis, all else equal (Section 4.3, Fig. 2).

    MNIST's 16 codes of 7 × 7 values become 49 of 16, CelebA's 100 of 8 × 8 become 64 of 100.
    """
    model, old = config.model, config.model.autoencoder
    if layout == old.layout:
        return config
    if not isinstance(model.prior, TransformerConfig):
        raise UserError(f"`layout` {layout} does not go with `recipe` {config.recipe}, whose prior needs spatial codes")
    autoencoder = replace(old, layout=layout, length=old.dim, dim=old.length)
    prior = replace(model.prior, length=autoencoder.length)
    return replace(config, model=replace(model, autoencoder=autoencoder, prior=prior), extra_codes=0)


def with_prior(config: RunConfig, prior_type: PriorType) -> RunConfig:
    """Put another type of prior on the same codes, for the same number of epochs.

    LSTM and PixelCNN have the Transformer's number of weights, its dropout, its optimiser and its schedule. The PixelCNN has
    the layers of the original VQ-VAE's, on the smallest square that holds the codes: 70 codes on 9 × 9.
    """
    old = config.model.prior
    if isinstance(old, _CONFIG_TYPES[prior_type]):
        return config
    epochs, length, codebook_size = config.prior.epochs, old.length, old.codebook_size
    transformer, stage = TransformerConfig(length=length, codebook_size=codebook_size), PriorStage(epochs=epochs)
    if isinstance(old, TransformerConfig):
        transformer, stage = old, config.prior
    prior: PriorConfig = transformer
    if prior_type == "lstm":
        width = lstm.matching_width(parameter_count(transformer), codebook_size)
        prior = LSTMConfig(length=length, codebook_size=codebook_size, width=width, dropout=transformer.dropout)
    elif prior_type == "pixelcnn":
        square = PixelCNNConfig(
            length=length, codebook_size=codebook_size, side=square_side(length), dropout=transformer.dropout
        )  # fmt: skip
        prior = replace(square, width=pixelcnn.matching_width(parameter_count(transformer), square))
    extra_codes = 0 if prior_type == "pixelcnn" else config.extra_codes  # a square of more codes has another side
    return replace(config, model=replace(config.model, prior=prior), prior=stage, extra_codes=extra_codes)


def with_length(config: RunConfig, length: int) -> RunConfig:
    """Set the number of channel-wise codes: the channels of the feature map and the prior's length, all else equal."""
    model = config.model
    if length < 1:
        raise UserError(f"`length` must be at least 1, not {length}")
    if model.autoencoder.layout != "channel":
        raise UserError(
            f"`length` {length} cannot be: this model has one code for each of the {model.autoencoder.length} positions of "
            "its feature map; use channel-wise codes"
        )
    prior = replace(model.prior, length=length)
    if isinstance(prior, PixelCNNConfig):
        prior = replace(prior, side=square_side(length))
    return replace(config, model=replace(model, autoencoder=replace(model.autoencoder, length=length), prior=prior))


def square_side(length: int) -> int:
    """Return the side of the smallest square that holds `length` codes.

    >>> square_side(70), square_side(81), square_side(82)
    (9, 9, 10)
    """
    return math.isqrt(length - 1) + 1


def with_device_defaults(config: Config, device: str) -> Config:
    """Compute as the type of device does it best: on a GPU in bfloat16, compiled and captured as a CUDA graph."""
    if device != "cuda" or config.scale == "smoke":
        return config
    return replace(config, precision="bfloat16", compile=True, graph=True)
