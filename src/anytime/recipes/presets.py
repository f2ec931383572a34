"""Recipes: which networks and which schedule for which data set. Each value has its source in docs/recipe.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anytime.autoencoders.layout import Layout
from anytime.autoencoders.quantizer import QuantizerConfig
from anytime.autoencoders.truncation import Full, Mixture, Truncation
from anytime.autoencoders.vqvae import AutoencoderConfig
from anytime.core.errors import UserError
from anytime.data.augment import NUM_AUGMENTATIONS
from anytime.model import ModelConfig
from anytime.priors import PriorConfig
from anytime.priors.lstm import LSTMConfig
from anytime.priors.pixelcnn import PixelCNNConfig
from anytime.priors.transformer import TransformerConfig
from anytime.recipes.base import BaseRunConfig, Scale, Shape
from anytime.training.stages import ORDERED, PIXELCNN, PRETRAIN, PRIOR, AutoencoderStage, FinetuneStage, PriorStage
from anytime.training.truncate_model import with_num_codes

Recipe = Literal["paper", "best", "original"]
SMOKE_EXAMPLES = 256
RELATIVE_ERROR_WEIGHT = 100.0
"""Weight that makes the squared error of sounds a share of their energy: 1 / RMS², which is 0.1² (`data.waves.LEVEL`)."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(BaseRunConfig):
    """A whole training run as one value; the run's `config.json`."""

    recipe: Recipe
    model: ModelConfig
    extra_codes: int = 0
    """Further codes that are learned like all others and cut off at the end: the prior's errors pile up along the codes, and
    the last of them make samples worse."""
    pretrain: AutoencoderStage = PRETRAIN
    ordered: AutoencoderStage = ORDERED
    prior: PriorStage = PRIOR
    finetune: FinetuneStage | None = None
    """The decoder alone against a judge; None leaves the stage out, as the paper does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extra_codes < 0:
            raise UserError(f"extra_codes must be at least 0, not {self.extra_codes}")
        _ = self.training_model  # refused where the last codes cannot be cut off
        stages = [stage for stage in (self.pretrain, self.ordered, self.finetune) if stage is not None]
        if not self.model.autoencoder.is_audio and any(stage.spectral_weight for stage in stages):
            raise UserError("spectral is a weight for sounds, and this model makes pictures; set it to 0")
        max_augmentations = max(stage.augmentations for stage in (self.prior, self.finetune) if stage is not None)
        if not self.model.autoencoder.is_audio and max_augmentations > NUM_AUGMENTATIONS:
            raise UserError(f"views: a picture can be shown in {NUM_AUGMENTATIONS} versions, not in {max_augmentations}")
        for name in ("conditional_discriminator", "global_head"):
            if self.model.autoencoder.is_audio and self.finetune is not None and getattr(self.finetune, name):
                raise UserError(f"tune.{name} is for pictures, and this model makes sounds; set it to false")

    @property
    def shape(self) -> Shape:
        return self.model.autoencoder.shape

    @property
    def training_model(self) -> ModelConfig:
        """The model as it learns, with its spare codes."""
        return with_num_codes(self.model, self.model.autoencoder.length + self.extra_codes) if self.extra_codes else self.model

    @property
    def epochs(self) -> str:
        """Of every stage that it has, in their order."""
        stages = (self.pretrain, self.ordered, self.prior, self.finetune)
        return " + ".join(str(stage.epochs) for stage in stages if stage is not None)


def image_shape(shape: Shape, feature: str) -> tuple[int, int, int]:
    """The same, known to be a picture's; `what` is made for nothing else."""
    if len(shape) != 3:
        raise UserError(f"{feature} is for pictures, not for sound")
    channels, height, width = shape
    return channels, height, width


def _vq(shape: Shape, length: int, codebook_size: int, widths: tuple[int, ...]) -> AutoencoderConfig:
    """The paper's networks: 4-wide stride-2 convolutions, one per width, then a 3-wide one; channel-wise codes."""
    area = (shape[1] >> len(widths)) * (shape[2] >> len(widths))
    return AutoencoderConfig(
        shape=(shape[0], shape[1], shape[2]),
        length=length,
        dim=area,
        quantizer=QuantizerConfig(codebook_size=codebook_size),
        widths=widths,
        kernels=(4,) * len(widths) + (3,),
        strides=(2,) * len(widths) + (1,),
    )


def _model(name: str, autoencoder: AutoencoderConfig) -> ModelConfig:
    prior = TransformerConfig(length=autoencoder.length, codebook_size=autoencoder.quantizer.codebook_size)
    return ModelConfig(name=name, autoencoder=autoencoder, prior=prior)


def paper_audio(name: str, shape: Shape) -> RunConfig:
    """The paper's recipe for sound (Appendices B and E.1): 20 + 20 epochs at 2e-4, batch 8; the prior as for pictures.

    Five convolutions, 25 wide and of stride 4, and WaveGAN's widths. The paper leaves the codes open: 128 of 512 here, 1,152
    bits for 0.96 s, so that a sixteenth is 8 codes. The error counts as a share of the sounds' energy: as it is, it is so small
    that the quantizer's terms would win, and latents and codebook shrink to nothing together.
    """
    channels, time = shape
    if time % 4**5:
        raise UserError(f"crops of {time} samples do not fit the network's five quarterings; use a multiple of {4**5}")
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
    return RunConfig(
        recipe="paper",
        scale="full",
        model=_model(name, autoencoder),
        pretrain=replace(PRETRAIN, epochs=20, lr=2e-4, batch=8, reconstruction_weight=RELATIVE_ERROR_WEIGHT),
        ordered=replace(ORDERED, epochs=20, lr=2e-4, batch=8, reconstruction_weight=RELATIVE_ERROR_WEIGHT),
    )


def paper(name: str, shape: Shape) -> RunConfig:
    """The paper's recipe, by the size of the pictures: 16 × 126 (MNIST), 70 × 1000 (CIFAR-10), 100 × 500 (CelebA)."""
    if len(shape) == 2:
        return paper_audio(name, shape)
    channels, height, width = shape
    if channels == 1 and height <= 28 and height % 4 == width % 4 == 0:
        return RunConfig(recipe="paper", scale="full", model=_model(name, _vq(shape, 16, 126, (16, 32))))
    if height % 8 or width % 8:
        raise UserError(f"pictures of {height} × {width} do not fit the network's three halvings; use a --size that 8 divides")
    if height <= 32:
        return RunConfig(recipe="paper", scale="full", model=_model(name, _vq(shape, 70, 1000, (128, 256, 512))))
    config = RunConfig(recipe="paper", scale="full", model=_model(name, _vq(shape, 100, 500, (128, 256, 512))))
    return replace(config, prior=replace(PRIOR, epochs=100))


def original(name: str, shape: Shape) -> RunConfig:
    """The original VQ-VAE with its gated PixelCNN, the paper's baseline: one code of 512 for each place of the map.

    Two halvings give 8 × 8 places at CIFAR-10's size, 7 × 7 at MNIST's, 16 × 16 at CelebA's. The autoencoder's epochs are the
    paper's 200 + 200, all of them with full codes.
    """
    if len(shape) != 3:
        raise UserError(f"--recipe original is there for pictures only; train {name} with --recipe paper")
    _, height, width = shape
    if height != width or height % 4:
        raise UserError(f"--recipe original needs square pictures whose side 4 divides, not {height} × {width}; change --size")
    side = height // 4
    autoencoder = AutoencoderConfig(
        shape=(shape[0], height, width),
        length=side * side,
        dim=256,
        quantizer=QuantizerConfig(codebook_size=512),
        layout="spatial",
        widths=(128,),
        kernels=(4, 4),
        strides=(2, 2),
        blocks=2,
    )
    prior = PixelCNNConfig(length=side * side, codebook_size=512, side=side)
    return RunConfig(
        recipe="original",
        scale="full",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior),
        ordered=replace(ORDERED, truncation=Full()),
        prior=replace(PIXELCNN, epochs=50 if height <= 32 else 100),
    )


def best_audio(name: str, shape: Shape) -> RunConfig:
    """Our recipe for sound, at the paper's code budget: residual networks, a running-mean codebook, voices played faster and
    slower, the distance of spectra beside the squared error, a decoder tuned against a judge.

    The first stage has the squared error alone: from the beginning, spectra would teach the network to ignore phases, and then
    the waveform is hardly learned any more.
    """
    base = paper_audio(name, shape)
    old = base.model.autoencoder
    autoencoder = replace(
        old,
        network="residual-audio",
        quantizer=replace(old.quantizer, commitment=0.25, codebook="ema", ema_decay=0.97, revive_dead_codes=True),
        widths=(48, 96, 192, 384, 512),
        kernels=(25, 8, 8, 8, 8, 3),
        strides=(4, 4, 4, 4, 4, 1),
        blocks=3,
    )
    stage = AutoencoderStage(
        epochs=24, truncation=Full(), batch=64, lr=5e-4, lr_schedule="cosine", padding="silence", reconstruction_weight=RELATIVE_ERROR_WEIGHT, speed_perturb=0.1,
    )  # fmt: skip
    prior = TransformerConfig(length=old.length, codebook_size=old.quantizer.codebook_size, dropout=0.2)
    return replace(
        base,
        recipe="best",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior),
        pretrain=stage,
        ordered=replace(stage, epochs=36, truncation=Mixture(full=0.25), spectral_weight=1.0),
        finetune=FinetuneStage(
            epochs=5,
            truncation=Mixture(full=0.25),
            padding="silence",
            reconstruction_weight=RELATIVE_ERROR_WEIGHT,
            spectral_weight=1.0,
            augmentations=2,
            speed_perturb=0.1,
        ),
        prior=PriorStage(
            epochs=16, lr=1e-3, warmup=500, lr_schedule="cosine", ema_decay=0.999, augmentations=8, speed_perturb=0.1
        ),
    )


def best_images(name: str, shape: Shape) -> RunConfig:
    """Our recipe for pictures, at the paper's code budget or below: residual networks, a running-mean codebook, mirrored
    pictures where there is colour, running means of the weights, and a decoder tuned against a judge on true codes and on the
    prior's own.

    The prior is smaller than the paper's, and samples come faster: MNIST's and CIFAR-10's models fit into the package together.
    Small coloured pictures have 20 codes of the paper's 70, the first of 40 that are learned, large ones the first 40 of 100:
    with more of them reconstructions get better, but samples worse. The prior sees small ones moved by a pixel, which is
    nearly as good as new ones. Coloured ones are drawn below temperature 1, where the prior's errors pile up less
    (docs/log.md).
    """
    base = paper(name, shape)
    old, is_color = base.model.autoencoder, shape[0] > 1
    small = is_color and shape[1] <= 32
    length, extra_codes = (20, 20) if small else (40, 60) if is_color else (old.length, 0)
    autoencoder = replace(
        old,
        length=length,
        network="residual-image",
        quantizer=replace(old.quantizer, commitment=0.25, codebook="ema", revive_dead_codes=True),
        widths=tuple(64 << level for level in range(len(old.widths))),
        blocks=2 if is_color else 1,  # beside 16 codes the decoder's time counts, and digits need no second one
    )
    layers, width = (6, 320) if is_color else (4, 192)
    prior = TransformerConfig(
        length=length, codebook_size=old.quantizer.codebook_size,
        layers=layers, width=width, hidden=4 * width, heads=width // 64, dropout=0.05 if small else 0.2 if is_color else 0.1,
    )  # fmt: skip
    stage = AutoencoderStage(epochs=15, truncation=Full(), lr=5e-4, lr_schedule="cosine", hflip=is_color)
    truncation, augmentations = Mixture(full=0.25), 2 if is_color else 1
    temperature = 0.7 if small else 0.8 if is_color else 1.0
    prior_schedule = (
        {"epochs": 6, "augmentations": NUM_AUGMENTATIONS} if small else {"epochs": 24, "augmentations": augmentations}
    )
    return replace(
        base,
        recipe="best",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior, temperature=temperature),
        pretrain=stage,
        ordered=replace(stage, epochs=40, truncation=truncation),
        extra_codes=extra_codes,
        prior=PriorStage(batch=256, lr=1e-3, warmup=1000, lr_schedule="cosine", ema_decay=0.999, **prior_schedule),
        finetune=FinetuneStage(
            epochs=40 if is_color else 20, truncation=truncation, discriminator_lr_ratio=4.0, reconstruction_weight=10.0, code_corruption=0.05, prior_samples=64,
            prior_truncation=Mixture(full=0.5), prior_temperature=0.85 if is_color else 1.0, conditional_discriminator=is_color, global_head=is_color,
            ema_decay=0.999, augmentations=augmentations, width=96 if is_color else 64,
        ),
    )  # fmt: skip


def best_digits(name: str, shape: Shape) -> RunConfig:
    """A small model that learns 8,000 digits in minutes on two CPU cores: running-mean codebook, smaller prior."""
    autoencoder = replace(
        _vq(shape, 16, 126, (32, 64)),
        quantizer=QuantizerConfig(codebook_size=126, commitment=0.25, codebook="ema", revive_dead_codes=True),
    )
    prior = TransformerConfig(length=16, codebook_size=126, layers=4, width=128, hidden=512, heads=4)
    return RunConfig(
        recipe="best",
        scale="full",
        model=ModelConfig(name=name, autoencoder=autoencoder, prior=prior),
        pretrain=replace(PRETRAIN, epochs=4, lr=2e-3, batch=64),
        ordered=replace(ORDERED, epochs=12, lr=2e-3, batch=64, truncation=Mixture(full=0.25)),
        prior=replace(PRIOR, epochs=9, warmup=200, batch=64),
    )


def recipe(name: str, which: Recipe | None, shape: Shape) -> RunConfig:
    """The named recipe at full scale; by default `best` for the embedded digits and `paper` for everything else."""
    which = which or ("best" if name == "digits" else "paper")
    if which == "paper":
        return paper(name, shape)
    if which == "original":
        return original(name, shape)
    if len(shape) == 2:
        return best_audio(name, shape)
    return best_digits(name, shape) if name == "digits" else best_images(name, shape)


def scaled(config: RunConfig, scale: Scale) -> RunConfig:
    """`short`: 40 + 60 + 20 epochs, for ablations. `smoke`: small networks, little data, two epochs of every stage."""
    config = replace(config, scale=scale)
    if scale == "short":
        return replace(
            config,
            pretrain=replace(config.pretrain, epochs=min(40, config.pretrain.epochs)),
            ordered=replace(config.ordered, epochs=min(60, config.ordered.epochs)),
            finetune=None if config.finetune is None else replace(config.finetune, epochs=min(10, config.finetune.epochs)),
            prior=replace(config.prior, epochs=min(20, config.prior.epochs)),
        )
    if scale == "smoke":
        return _smoke(config)
    return config


def _smoke(config: RunConfig) -> RunConfig:
    old = config.model
    autoencoder = replace(old.autoencoder, widths=tuple(min(w, 8) for w in old.autoencoder.widths))
    audio = autoencoder.is_audio
    if audio:  # a sixteenth is one code; few of them keep the decoder's dense layer small
        autoencoder = replace(autoencoder, length=16, quantizer=replace(autoencoder.quantizer, codebook_size=64))
    if (
        autoencoder.network == "image" and autoencoder.blocks
    ):  # here the entries' size is a width of the network too, and its largest
        autoencoder = replace(autoencoder, dim=16)
    return replace(
        config,
        model=replace(old, autoencoder=autoencoder, prior=_smoke_prior(old.prior, autoencoder)),
        pretrain=replace(config.pretrain, epochs=2, batch=32),
        ordered=replace(config.ordered, epochs=2, batch=32),
        finetune=None if config.finetune is None else _smoke_finetune(config.finetune, audio),
        prior=replace(config.prior, epochs=2, batch=32, augmentations=min(2, config.prior.augmentations)),
        examples=64 if audio else SMOKE_EXAMPLES,
        checkpoint_seconds=0.0,
        sample_grids=1,
    )


def _smoke_finetune(stage: FinetuneStage, audio: bool) -> FinetuneStage:
    augmentations = 1 if audio else stage.augmentations
    return replace(
        stage,
        epochs=2,
        batch=32,
        augmentations=augmentations,
        width=2,
        prior_samples=min(8, stage.prior_samples),
        sample_pool=64,
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
    """The recipe with another law behind its first stage; `Full` gives the unordered baseline, which has no code to spare."""
    finetune = None if config.finetune is None else replace(config.finetune, truncation=distribution, prior_truncation=None)
    extra_codes = 0 if isinstance(distribution, Full) else config.extra_codes
    return replace(config, ordered=replace(config.ordered, truncation=distribution), finetune=finetune, extra_codes=extra_codes)


def with_layout(config: RunConfig, layout: Layout) -> RunConfig:
    """The recipe with its feature map read along the other axis, nothing else changed (Section 4.3, Fig. 2).

    MNIST's 16 codes of 7 × 7 numbers become 49 of 16, CelebA's 100 of 8 × 8 become 64 of 100.
    """
    model, old = config.model, config.model.autoencoder
    if layout == old.layout:
        return config
    if not isinstance(model.prior, TransformerConfig):
        raise UserError(f"--layout {layout} does not go with --recipe {config.recipe}, whose prior needs a map of places")
    autoencoder = replace(old, layout=layout, length=old.dim, dim=old.length)
    prior = replace(model.prior, length=autoencoder.length)
    return replace(config, model=replace(model, autoencoder=autoencoder, prior=prior), extra_codes=0)
