"""Our best recipe, at the paper's code budget or below it: one preset per dataset (docs/deviations.md, docs/log.md).

Images: residual networks, an EMA codebook, EMA weights, and a decoder fine-tuned against a discriminator on the codes of
examples and of the prior. The prior is smaller than the paper's, so that samples come faster.
"""

from __future__ import annotations

from dataclasses import replace

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.truncation import Full, Mixture
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.model import ModelConfig
from anytime.priors.transformer import TransformerConfig
from anytime.recipes import paper
from anytime.training.config import RunConfig, Shape
from anytime.training.stages import AutoencoderStage, FinetuneStage, PriorStage

_PRETRAIN = AutoencoderStage(epochs=15, lr=5e-4, lr_schedule="cosine", batch=128, truncation=Full())
_ORDERED = replace(_PRETRAIN, epochs=40, truncation=Mixture(full=0.25))
_PRIOR = PriorStage(epochs=24, lr=1e-3, lr_schedule="cosine", warmup=1000, batch=256, ema_decay=0.999)
_FINETUNE = FinetuneStage(
    epochs=20, lr=2e-4, batch=64, truncation=Mixture(full=0.25), discriminator_lr_ratio=4.0, reconstruction_weight=10.0,
    code_corruption=0.05, prior_samples=64, prior_truncation=Mixture(full=0.5), ema_decay=0.999, width=64,
)  # fmt: skip


def mnist(name: str, shape: Shape) -> RunConfig:
    """MNIST: 16 codes, codebook size 126."""
    return _greyscale(name, shape, length=16, codebook_size=126, widths=(64, 128))


def greyscale_32(name: str, shape: Shape) -> RunConfig:
    """Greyscale images up to 32 × 32: MNIST's preset with 70 codes, codebook size 1,000."""
    return _greyscale(name, shape, length=70, codebook_size=1000, widths=(64, 128, 256))


def greyscale_64(name: str, shape: Shape) -> RunConfig:
    """Greyscale images above 32 × 32: MNIST's preset with 100 codes, codebook size 500."""
    return _greyscale(name, shape, length=100, codebook_size=500, widths=(64, 128, 256))


def _greyscale(name: str, shape: Shape, *, length: int, codebook_size: int, widths: tuple[int, ...]) -> RunConfig:
    # One block per size: next to 16 codes the decoder's time counts, and digits do not need a second one.
    autoencoder = _residual_autoencoder(shape, length=length, codebook_size=codebook_size, widths=widths, blocks=1)
    prior = TransformerConfig(
        length=length, codebook_size=codebook_size, layers=4, width=192, hidden=768, heads=3, dropout=0.1
    )  # fmt: skip
    return RunConfig(
        recipe="best",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior),
        pretrain=_PRETRAIN,
        ordered=_ORDERED,
        prior=_PRIOR,
        finetune=_FINETUNE,
    )


def cifar10(name: str, shape: Shape) -> RunConfig:
    """CIFAR-10: the first 20 of 40 codes, codebook size 1,000, sampled at temperature 0.7.

    More codes improve reconstructions and make samples worse. The prior sees images flipped and shifted by a pixel, which
    helps nearly as much as new images. Below temperature 1 its errors accumulate less.
    """
    autoencoder = _residual_autoencoder(shape, length=20, codebook_size=1000, widths=(64, 128, 256), blocks=2)
    prior = TransformerConfig(length=20, codebook_size=1000, layers=6, width=320, hidden=1280, heads=5, dropout=0.05)
    return RunConfig(
        recipe="best",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior, temperature=0.7),
        extra_codes=20,
        pretrain=replace(_PRETRAIN, hflip=True),
        ordered=replace(_ORDERED, hflip=True),
        prior=replace(_PRIOR, epochs=6, augmentations=18),
        finetune=replace(
            _FINETUNE, epochs=40, prior_temperature=0.85, conditional_discriminator=True, global_head=True, augmentations=2,
            width=96,
        ),
    )  # fmt: skip


def celeba(name: str, shape: Shape) -> RunConfig:
    """CelebA: CIFAR-10's preset with the first 40 of 100 codes, codebook size 500, sampled at temperature 0.8."""
    autoencoder = _residual_autoencoder(shape, length=40, codebook_size=500, widths=(64, 128, 256), blocks=2)
    prior = TransformerConfig(length=40, codebook_size=500, layers=6, width=320, hidden=1280, heads=5, dropout=0.2)
    base = cifar10(name, shape)
    return replace(
        base,
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior, temperature=0.8),
        extra_codes=60,
        prior=replace(base.prior, epochs=24, augmentations=2),
    )


def digits(name: str, shape: Shape) -> RunConfig:
    """The embedded digits: a small model that learns 8,000 of them in minutes on two CPU cores."""
    autoencoder = replace(
        paper.conv_autoencoder(shape, length=16, codebook_size=126, widths=(32, 64)), quantizer=_ema_quantizer(126)
    )
    prior = TransformerConfig(length=16, codebook_size=126, layers=4, width=128, hidden=512, heads=4)
    return RunConfig(
        recipe="best",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior),
        pretrain=AutoencoderStage(epochs=4, lr=2e-3, batch=64, truncation=Full()),
        ordered=AutoencoderStage(epochs=12, lr=2e-3, batch=64, truncation=Mixture(full=0.25)),
        prior=PriorStage(epochs=9, lr=2e-3, warmup=200, batch=64),
    )


def audio(name: str, shape: Shape) -> RunConfig:
    """Audio: 128 codes, codebook size 512, residual networks, speed perturbation, STFT distance, and a fine-tuned decoder.

    The first stage has the squared error alone: with spectra from the beginning the network would learn to ignore phases,
    and then hardly learn the waveform.
    """
    theirs = paper.audio(name, shape).model.autoencoder
    autoencoder = replace(
        theirs,
        network="residual-audio",
        quantizer=replace(theirs.quantizer, commitment=0.25, codebook="ema", ema_decay=0.97, revive_dead_codes=True),
        widths=(48, 96, 192, 384, 512),
        kernels=(25, 8, 8, 8, 8, 3),
        strides=(4, 4, 4, 4, 4, 1),
        blocks=3,
    )
    pretrain = AutoencoderStage(
        epochs=24, lr=5e-4, lr_schedule="cosine", batch=64, truncation=Full(), padding="silence",
        reconstruction_weight=paper.RELATIVE_ERROR_WEIGHT, speed_perturb=0.1,
    )  # fmt: skip
    return RunConfig(
        recipe="best",
        model=ModelConfig(
            name=name,
            autoencoder=autoencoder,
            prior=TransformerConfig(length=theirs.length, codebook_size=theirs.quantizer.codebook_size, dropout=0.2),
        ),
        pretrain=pretrain,
        ordered=replace(pretrain, epochs=36, truncation=Mixture(full=0.25), spectral_weight=1.0),
        prior=PriorStage(
            epochs=16, lr=1e-3, lr_schedule="cosine", warmup=500, ema_decay=0.999, augmentations=8, speed_perturb=0.1
        ),
        finetune=FinetuneStage(
            epochs=5, lr=2e-4, batch=64, truncation=Mixture(full=0.25), padding="silence",
            reconstruction_weight=paper.RELATIVE_ERROR_WEIGHT, spectral_weight=1.0, augmentations=2, speed_perturb=0.1,
        ),
    )  # fmt: skip


def _residual_autoencoder(
    shape: Shape, *, length: int, codebook_size: int, widths: tuple[int, ...], blocks: int
) -> AutoencoderConfig:
    """Return the paper's autoencoder with residual networks and an EMA codebook."""
    theirs = paper.conv_autoencoder(shape, length=length, codebook_size=codebook_size, widths=widths)
    return replace(theirs, network="residual-image", quantizer=_ema_quantizer(codebook_size), blocks=blocks)


def _ema_quantizer(codebook_size: int) -> QuantizerConfig:
    return QuantizerConfig(codebook_size=codebook_size, commitment=0.25, codebook="ema", revive_dead_codes=True)
