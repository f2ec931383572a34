"""The original VQ-VAE with its gated PixelCNN, the paper's baseline: one code (codebook size 512) per position of the map."""

from __future__ import annotations

from dataclasses import replace

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.truncation import Full
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core.errors import UserError
from anytime.model import ModelConfig
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.training.config import RunConfig, Shape
from anytime.training.stages import AutoencoderStage, PriorStage


def pixelcnn_stage(epochs: int) -> PriorStage:
    """Train a PixelCNN with plain Adam at a constant learning rate."""
    return PriorStage(epochs=epochs, lr=3e-4, batch=128, warmup=1, lr_schedule="constant", weight_decay=0.0)


def celeba(name: str, shape: Shape) -> RunConfig:
    """CelebA: 16 × 16 codes, and 100 epochs of the prior."""
    return replace(mnist_or_cifar10(name, shape), prior=pixelcnn_stage(100))


def mnist_or_cifar10(name: str, shape: Shape) -> RunConfig:
    """MNIST: 7 × 7 codes; CIFAR-10: 8 × 8 codes."""
    channels, height, width = shape
    if height != width or height % 4:
        size = f"{height} × {width}"
        raise UserError(f"`recipe` original needs square images whose side 4 divides, not {size}; change `size`")
    side = height // 4
    # EMA and β = 0.25 are van den Oord et al.'s. With a gradient and β = 1, 453 of 512 entries died in CIFAR-10's first epochs.
    quantizer = QuantizerConfig(
        codebook_size=512, commitment=0.25, codebook="ema", init="latents", revive_dead_codes=True
    )  # fmt: skip
    autoencoder = AutoencoderConfig(
        shape=(channels, height, width), layout="spatial", length=side * side, dim=256,
        quantizer=quantizer, widths=(128,), kernels=(4, 4), strides=(2, 2), blocks=2,
    )  # fmt: skip
    model = ModelConfig(
        name=name, autoencoder=autoencoder, prior=PixelCNNConfig(length=side * side, codebook_size=512, side=side)
    )
    # Two stages, as in the paper, both with all codes.
    stage = AutoencoderStage(epochs=200, lr=1e-3, batch=128, truncation=Full())
    return RunConfig(recipe="original", model=model, pretrain=stage, ordered=stage, prior=pixelcnn_stage(50))
