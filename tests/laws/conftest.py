"""Small models that every law is tested on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import settings
from torch import nn

from anytime import priors
from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.vqvae import VQVAE, AutoencoderConfig
from anytime.model import AnytimeModel, _tiny
from anytime.priors.lstm import LSTMConfig
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.priors.transformer import TransformerConfig

collect_ignore = ["conftest.py"]  # doctests: two modules of this name cannot both be imported

# No deadline: the machine may be busy. Derandomised: the same examples on every run.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")

NETWORK = {"widths": (4, 6), "kernels": (4, 4, 3), "strides": (2, 2, 1)}  # quarters height and width
ORIGINAL = {"widths": (5,), "kernels": (4, 4), "strides": (2, 2), "blocks": 2}  # the same, with residual blocks
AUDIO = {"network": "audio", "widths": (5, 7), "kernels": (25, 25, 25), "strides": (4, 4, 4)}  # divides time by 64
QUANTIZER = QuantizerConfig(codebook_size=12)

AUTOENCODERS = {
    "channel-grey": AutoencoderConfig(shape=(1, 12, 12), length=5, dim=9, quantizer=QUANTIZER, layout="channel", **NETWORK),
    "channel-colour": AutoencoderConfig(shape=(3, 16, 8), length=6, dim=8, quantizer=QUANTIZER, layout="channel", **NETWORK),
    "spatial-grey": AutoencoderConfig(shape=(1, 12, 12), length=9, dim=5, quantizer=QUANTIZER, layout="spatial", **NETWORK),
    "spatial-colour": AutoencoderConfig(shape=(3, 16, 8), length=8, dim=6, quantizer=QUANTIZER, layout="spatial", **NETWORK),
    "original": AutoencoderConfig(shape=(3, 12, 12), length=9, dim=6, quantizer=QUANTIZER, layout="spatial", **ORIGINAL),
    "audio": AutoencoderConfig(shape=(1, 256), length=6, dim=4, quantizer=QUANTIZER, layout="channel", **AUDIO),
    "audio-spatial": AutoencoderConfig(shape=(1, 256), length=4, dim=6, quantizer=QUANTIZER, layout="spatial", **AUDIO),
}


def spread(autoencoder: VQVAE) -> VQVAE:
    """Spread codebook entries and run batch norms on data, as after training."""
    nn.init.normal_(autoencoder.quantizer.codebook)
    with torch.no_grad():
        autoencoder.train()
        autoencoder(torch.rand(32, *autoencoder.config.shape), torch.full((32,), autoencoder.length))
    return autoencoder.eval()


@pytest.fixture(scope="session", params=AUTOENCODERS)
def autoencoder(request: pytest.FixtureRequest) -> VQVAE:
    """Channel-wise and spatial-wise autoencoders of grey and colour images and audio, with and without residual blocks."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return spread(VQVAE(AUTOENCODERS[request.param]))


MODELS = {
    "transformer": _tiny(),
    "audio": replace(
        _tiny(),
        autoencoder=AutoencoderConfig(shape=(1, 256), length=8, dim=4, quantizer=QuantizerConfig(codebook_size=16), **AUDIO),
    ),
    "pixelcnn": replace(_tiny(), prior=PixelCNNConfig(length=8, codebook_size=16, side=3, layers=3, width=12, head=24)),
    "lstm": replace(_tiny(), prior=LSTMConfig(length=8, codebook_size=16, layers=2, width=24)),
}


def lively(prior: priors.PriorNetwork) -> priors.PriorNetwork:
    """Scale the logits as after training, so that earlier codes matter to the sampled one."""
    if isinstance(prior, priors.PixelCNN):
        with torch.no_grad():
            prior.head[-1].weight.mul_(8)
    if isinstance(prior, priors.LSTM):
        with torch.no_grad():
            prior.tokens.weight.mul_(8)
    return prior.eval()


@pytest.fixture(scope="session", params=MODELS)
def model(request: pytest.FixtureRequest) -> AnytimeModel:
    """Models of 8 codes of 16: images of 28 × 28 with each prior, and audio."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        whole = AnytimeModel(MODELS[request.param])
        spread(whole.autoencoder)
        lively(whole.prior)
        return whole.eval()


PRIORS = {  # wide enough that batches of different sizes may round differently
    "transformer": TransformerConfig(length=12, codebook_size=40, layers=2, width=64, hidden=128, heads=4),
    "pixelcnn": PixelCNNConfig(length=12, codebook_size=40, side=4, layers=4, width=32, head=64),
    "lstm": LSTMConfig(length=12, codebook_size=40, layers=3, width=64),
    "pixelcnn-with-room": PixelCNNConfig(length=12, codebook_size=40, side=5, layers=4, width=32, head=64),
}


@pytest.fixture(scope="session", params=PRIORS)
def prior(request: pytest.FixtureRequest) -> priors.PriorNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return lively(priors.build(PRIORS[request.param]))
