"""Presets of the paper's continuous baselines: the VAE (Appendix C.1) and the density models (Appendix D)."""

from __future__ import annotations

import math
from dataclasses import replace

from anytime.autoencoders.truncation import Full, Uniform
from anytime.baselines.continuous_transformer import ContinuousConfig
from anytime.baselines.density import DensityConfig, DensityRunConfig, Space
from anytime.baselines.vae import VAEConfig, VAERunConfig, VAEStage
from anytime.core.errors import UserError
from anytime.recipes.presets import preset
from anytime.training.config import SMOKE_EXAMPLES, Scale, Shape, image_shape
from anytime.training.stages import PriorStage


def vae(name: str, shape: Shape, scale: Scale = "full", length: int | None = None) -> VAERunConfig:
    """Return the paper's networks and schedule with a Gaussian in place of the codebook."""
    autoencoder = preset(name, "paper", shape).model.autoencoder
    if length is not None and length < 1:
        raise UserError(f"`length` must be at least 1, not {length}")
    model = VAEConfig(
        name=name,
        shape=image_shape(shape, "`recipe` vae"),
        length=length or autoencoder.length,
        widths=autoencoder.widths,
        kernels=autoencoder.kernels,
        strides=autoencoder.strides,
    )
    epochs = {"smoke": (2, 2), "short": (40, 60), "full": (200, 200)}[scale]
    batch = 32 if scale == "smoke" else 128
    config = VAERunConfig(
        scale=scale,
        model=model,
        pretrain=VAEStage(epochs=epochs[0], lr=1e-3, batch=batch, truncation=Full()),  # a standard VAE
        ordered=VAEStage(epochs=epochs[1], lr=1e-3, batch=batch, truncation=Uniform()),
    )
    if scale != "smoke":
        return config
    model = replace(model, widths=tuple(min(width, 8) for width in model.widths))
    return replace(config, model=model, examples=SMOKE_EXAMPLES, checkpoint_seconds=0.0, sample_grids=1)


def density(name: str, shape: Shape, space: Space, scale: Scale = "full") -> DensityRunConfig:
    """Return the paper's Transformer with a mixture of ten logistics, on dequantised pixels or their principal components.

    The paper states no schedule. The learning rate is a quarter of the prior's: at 2e-3 the loss over hundreds of values
    jumped in the warm-up and did not recover. A batch of 32 images has 25,000 values of MNIST. Dropout would blur where a
    pixel's density is one level wide, and new noise in every epoch leaves little to overfit.
    """
    image, prior = image_shape(shape, "a density model"), ContinuousConfig(length=math.prod(shape), dropout=0.0)
    model = DensityConfig(name=name, shape=image, space=space, prior=prior)
    epochs = {"smoke": 2, "short": 2, "full": 8}[scale]
    stage = PriorStage(epochs=epochs, batch=32, lr=5e-4, warmup=1000, lr_schedule="cosine", weight_decay=0.1)
    config = DensityRunConfig(scale=scale, model=model, prior=stage)
    if scale != "smoke":
        return config
    model = replace(model, prior=replace(prior, layers=1, width=16, hidden=32, heads=2, mixtures=3))
    return replace(config, model=model, prior=replace(stage, batch=16), examples=64, checkpoint_seconds=0.0, sample_grids=0)
