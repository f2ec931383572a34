"""Drop the last codes of a model; the first ones keep their meaning, their distribution and what they decode to."""

from __future__ import annotations

from dataclasses import replace

from anytime.core.errors import UserError
from anytime.model import AnytimeModel, ModelConfig
from anytime.priors.pixelcnn import PixelCNNConfig


def with_num_codes(config: ModelConfig, length: int) -> ModelConfig:
    """Return the same networks for another number of codes, such that the first codes are the same.

    Each code needs its own channel of the feature map, without blocks that mix channels, and its own position in a sequence,
    which a PixelCNN's square does not have.
    """
    old, prior = config.autoencoder, config.prior
    if old.layout != "channel" or (old.network == "image" and old.blocks) or isinstance(prior, PixelCNNConfig):
        raise UserError("the last codes cannot be dropped with spatial codes, blocks that mix codes, or a PixelCNN prior")
    return replace(config, autoencoder=replace(old, length=length), prior=replace(prior, length=length))


def truncate_model(model: AnytimeModel, length: int) -> AnytimeModel:
    """Keep only the first `length` codes of a model; their weights come first in every tensor."""
    short, weights = AnytimeModel(with_num_codes(model.config, length)), model.state_dict()
    short.load_state_dict({name: weights[name][tuple(map(slice, own.shape))] for name, own in short.state_dict().items()})
    return short.to(model.device).eval()
