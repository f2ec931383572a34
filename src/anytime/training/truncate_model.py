"""A model without its last codes: what the first ones mean, how they are drawn and what they decode to stays as it was."""

from __future__ import annotations

from dataclasses import replace

from anytime.core.errors import UserError
from anytime.model import AnytimeModel, ModelConfig
from anytime.priors.pixelcnn import PixelCNNConfig


def with_num_codes(config: ModelConfig, length: int) -> ModelConfig:
    """The same networks for another number of codes, such that the first codes of one are codes of the other.

    Each code must have a channel of the feature map for itself, which blocks on the map would mix, and a place of its own in a
    sequence, which a PixelCNN's square is not.
    """
    old, prior = config.autoencoder, config.prior
    if old.layout != "channel" or (old.network == "image" and old.blocks) or isinstance(prior, PixelCNNConfig):
        raise UserError("the last codes cannot be cut off where codes are places, blocks mix them or the prior is a PixelCNN")
    return replace(config, autoencoder=replace(old, length=length), prior=replace(prior, length=length))


def truncate_model(model: AnytimeModel, length: int) -> AnytimeModel:
    """The first `length` codes of a model, as a model: its tensors hold what is needed for them in front."""
    short, weights = AnytimeModel(with_num_codes(model.config, length)), model.state_dict()
    short.load_state_dict({name: weights[name][tuple(map(slice, own.shape))] for name, own in short.state_dict().items()})
    return short.to(model.device).eval()
