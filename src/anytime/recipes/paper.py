"""The paper's recipe: one preset per dataset (Section 4, Appendices B and E.1).

Pretraining with full codes is an ordinary VQ-VAE; ordered training samples `keep` uniformly, and the codes fall into order.
"""

from __future__ import annotations

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.truncation import Full, Uniform
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core.errors import UserError
from anytime.model import ModelConfig
from anytime.priors.transformer import TransformerConfig
from anytime.training.config import RunConfig, Shape, image_shape
from anytime.training.stages import AutoencoderStage, PriorStage

RELATIVE_ERROR_WEIGHT = 100.0
"""Weight that turns the squared error of audio into a share of its energy: 1 / RMS², with an RMS of 0.1 (`audio_io.LEVEL`).

Unweighted, the error is so small that the quantizer's terms win, and latents and codebook shrink to zero together.
"""


def mnist(name: str, shape: Shape) -> RunConfig:
    """MNIST: 16 codes of 126."""
    autoencoder = conv_autoencoder(shape, length=16, codebook_size=126, widths=(16, 32))
    return RunConfig(
        recipe="paper",
        model=_model(name, autoencoder),
        pretrain=AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Full()),
        ordered=AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Uniform()),
        prior=PriorStage(epochs=50, lr=2e-3, batch=128, warmup=3000, lr_schedule="sqrt", weight_decay=0.1),
    )


def cifar10(name: str, shape: Shape) -> RunConfig:
    """CIFAR-10: 70 codes of 1,000."""
    autoencoder = conv_autoencoder(shape, length=70, codebook_size=1000, widths=(128, 256, 512))
    return RunConfig(
        recipe="paper",
        model=_model(name, autoencoder),
        pretrain=AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Full()),
        ordered=AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Uniform()),
        prior=PriorStage(epochs=50, lr=2e-3, batch=128, warmup=3000, lr_schedule="sqrt", weight_decay=0.1),
    )


def celeba(name: str, shape: Shape) -> RunConfig:
    """CelebA: 100 codes of 500, and 100 epochs of the prior."""
    autoencoder = conv_autoencoder(shape, length=100, codebook_size=500, widths=(128, 256, 512))
    return RunConfig(
        recipe="paper",
        model=_model(name, autoencoder),
        pretrain=AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Full()),
        ordered=AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Uniform()),
        prior=PriorStage(epochs=100, lr=2e-3, batch=128, warmup=3000, lr_schedule="sqrt", weight_decay=0.1),
    )


def audio(name: str, shape: Shape) -> RunConfig:
    """Audio: 128 codes of 512, five convolutions of stride 4 with WaveGAN's widths.

    The paper leaves the number of codes open. 128 of 512 are 1,152 bits for 0.96 s, and a sixteenth of them is 8 codes.
    """
    channels, time = shape
    if time % 4**5:
        raise UserError(f"crops of {time} samples do not fit five convolutions of stride 4; use a multiple of {4**5}")
    autoencoder = AutoencoderConfig(
        network="audio",
        shape=(channels, time),
        length=128,
        dim=time // 4**5,
        quantizer=QuantizerConfig(codebook_size=512, init="latents"),
        widths=(64, 128, 256, 512),
        kernels=(25,) * 5,
        strides=(4,) * 5,
    )
    weight = RELATIVE_ERROR_WEIGHT
    return RunConfig(
        recipe="paper",
        model=_model(name, autoencoder),
        pretrain=AutoencoderStage(epochs=20, lr=2e-4, batch=8, truncation=Full(), reconstruction_weight=weight),
        ordered=AutoencoderStage(epochs=20, lr=2e-4, batch=8, truncation=Uniform(), reconstruction_weight=weight),
        prior=PriorStage(epochs=50, lr=2e-3, batch=128, warmup=3000, lr_schedule="sqrt", weight_decay=0.1),
    )


def conv_autoencoder(shape: Shape, *, length: int, codebook_size: int, widths: tuple[int, ...]) -> AutoencoderConfig:
    """Return the paper's networks for images: stride-2 convolutions with kernel 4, one per width, then one with kernel 3."""
    channels, height, width = image_shape(shape, "a convolutional autoencoder")
    if height % (1 << len(widths)) or width % (1 << len(widths)):
        raise UserError(f"images of {height} × {width} do not fit the network's three halvings; use a `size` that 8 divides")
    return AutoencoderConfig(
        shape=(channels, height, width),
        length=length,
        dim=(height >> len(widths)) * (width >> len(widths)),
        quantizer=QuantizerConfig(codebook_size=codebook_size),
        widths=widths,
        kernels=(4,) * len(widths) + (3,),
        strides=(2,) * len(widths) + (1,),
    )


def _model(name: str, autoencoder: AutoencoderConfig) -> ModelConfig:
    """Put the paper's Transformer on the codes of an autoencoder."""
    prior = TransformerConfig(
        length=autoencoder.length, codebook_size=autoencoder.quantizer.codebook_size,
        layers=6, width=512, hidden=2048, heads=8, dropout=0.1,
    )  # fmt: skip
    return ModelConfig(name=name, autoencoder=autoencoder, prior=prior)
