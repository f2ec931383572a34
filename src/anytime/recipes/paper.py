"""The paper's recipe: one preset per dataset (Section 4, Appendices B and E.1).

Pretraining with full codes is an ordinary VQ-VAE; ordered training samples `keep` uniformly, and the codes fall into order.
"""

from __future__ import annotations

from dataclasses import replace

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.truncation import Full, Uniform
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core.errors import UserError
from anytime.model import ModelConfig
from anytime.priors.transformer import TransformerConfig
from anytime.training.config import RunConfig, Shape, image_shape
from anytime.training.stages import AutoencoderStage, PriorStage

RELATIVE_ERROR_WEIGHT = 100.0
"""Weight that turns the squared error of audio into a share of its energy: 1 / RMS² (`data.audio_io.TARGET_RMS`).

Unweighted, the error is so small that the quantizer's terms win, and latents and codebook shrink to zero together.
"""


_PRETRAIN = AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Full())


def mnist(name: str, shape: Shape) -> RunConfig:
    """MNIST: 16 codes, codebook size 126."""
    return _run(name, conv_autoencoder(shape, length=16, codebook_size=126, widths=(16, 32)))


def cifar10(name: str, shape: Shape) -> RunConfig:
    """CIFAR-10: 70 codes, codebook size 1,000."""
    return _run(name, conv_autoencoder(shape, length=70, codebook_size=1000, widths=(128, 256, 512)))


def celeba(name: str, shape: Shape) -> RunConfig:
    """CelebA: 100 codes, codebook size 500, and 100 epochs of the prior."""
    return _run(name, conv_autoencoder(shape, length=100, codebook_size=500, widths=(128, 256, 512)), prior_epochs=100)


def audio(name: str, shape: Shape) -> RunConfig:
    """Audio: 128 codes, codebook size 512, five convolutions of stride 4 with WaveGAN's widths.

    The paper leaves the number of codes open. They take 1,152 bits for 0.96 s, and a sixteenth of them is 8 codes.
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
    # Silence is learned: almost all recordings of AudioMNIST are shorter than a crop, and a masked end teaches no silence.
    pretrain = replace(_PRETRAIN, epochs=20, lr=2e-4, batch=8, padding="silence", reconstruction_weight=RELATIVE_ERROR_WEIGHT)
    return _run(name, autoencoder, pretrain)


def conv_autoencoder(shape: Shape, *, length: int, codebook_size: int, widths: tuple[int, ...]) -> AutoencoderConfig:
    """Return the paper's networks for images: stride-2 convolutions with kernel 4, one per width, then one with kernel 3."""
    channels, height, width = image_shape(shape, "a convolutional autoencoder")
    multiple = 1 << len(widths)
    if height % multiple or width % multiple:
        raise UserError(
            f"images of {height} × {width} do not fit {len(widths)} convolutions of stride 2; use a `size` that is a multiple "
            f"of {multiple}"
        )
    return AutoencoderConfig(
        shape=(channels, height, width),
        length=length,
        dim=(height >> len(widths)) * (width >> len(widths)),
        quantizer=QuantizerConfig(codebook_size=codebook_size),
        widths=widths,
        kernels=(4,) * len(widths) + (3,),
        strides=(2,) * len(widths) + (1,),
    )


def _run(
    name: str, autoencoder: AutoencoderConfig, pretrain: AutoencoderStage = _PRETRAIN, prior_epochs: int = 50
) -> RunConfig:
    """Return the stages of the paper, with its Transformer on the codes."""
    prior = TransformerConfig(
        length=autoencoder.length, codebook_size=autoencoder.quantizer.codebook_size,
        layers=6, width=512, hidden=2048, heads=8, dropout=0.1,
    )  # fmt: skip
    return RunConfig(
        recipe="paper",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior),
        pretrain=pretrain,
        ordered=replace(pretrain, truncation=Uniform()),
        prior=PriorStage(epochs=prior_epochs, lr=2e-3, batch=128, warmup=3000, lr_schedule="sqrt", weight_decay=0.1),
    )
