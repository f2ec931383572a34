"""The original VQ-VAE with its gated PixelCNN, the paper's baseline: one code (codebook size 512) per position of the map."""

from __future__ import annotations

from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.truncation import Full
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core.errors import UserError
from anytime.model import ModelConfig
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.training.config import RunConfig, Shape
from anytime.training.stages import AutoencoderStage, PriorStage


def mnist(name: str, shape: Shape) -> RunConfig:
    """MNIST: 7 × 7 codes."""
    return _run(name, shape, autoencoder_epochs=200, autoencoder_lr=1e-3, prior_epochs=50, prior_lr=3e-4)


def cifar10(name: str, shape: Shape) -> RunConfig:
    """CIFAR-10: 8 × 8 codes."""
    return _run(name, shape, autoencoder_epochs=200, autoencoder_lr=1e-3, prior_epochs=50, prior_lr=3e-4)


def celeba(name: str, shape: Shape) -> RunConfig:
    """CelebA: 16 × 16 codes, and 100 epochs of the prior."""
    return _run(name, shape, autoencoder_epochs=200, autoencoder_lr=1e-3, prior_epochs=100, prior_lr=3e-4)


def pixelcnn_stage(epochs: int, lr: float = 3e-4) -> PriorStage:
    """Train a PixelCNN with plain Adam at a constant learning rate."""
    return PriorStage(epochs=epochs, lr=lr, batch=128, warmup=1, lr_schedule="constant", weight_decay=0.0)


def _run(
    name: str, shape: Shape, *, autoencoder_epochs: int, autoencoder_lr: float, prior_epochs: int, prior_lr: float
) -> RunConfig:
    stage = AutoencoderStage(epochs=autoencoder_epochs, lr=autoencoder_lr, batch=128, truncation=Full())
    prior = pixelcnn_stage(prior_epochs, prior_lr)
    # Two stages, as in the paper, both with all codes.
    return RunConfig(recipe="original", model=_model(name, shape), pretrain=stage, ordered=stage, prior=prior)


def _model(name: str, shape: Shape) -> ModelConfig:
    channels, height, width = shape
    if height != width or height % 4:
        size = f"{height} × {width}"
        raise UserError(f"`recipe` original needs square images whose side 4 divides, not {size}; change `size`")
    side = height // 4
    autoencoder = AutoencoderConfig(
        shape=(channels, height, width), layout="spatial", length=side * side, dim=256,
        quantizer=QuantizerConfig(codebook_size=512), widths=(128,), kernels=(4, 4), strides=(2, 2), blocks=2,
    )  # fmt: skip
    prior = PixelCNNConfig(length=side * side, codebook_size=512, side=side)
    return ModelConfig(name=name, autoencoder=autoencoder, prior=prior)
