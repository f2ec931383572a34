"""The config of a run: a model, its stages, and how to compute them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from torch import nn

from anytime.core.errors import UserError
from anytime.data.augment import NUM_AUGMENTATIONS
from anytime.model import AnytimeModel, ModelConfig
from anytime.training.stages import AutoencoderStage, FinetuneStage, PriorStage
from anytime.training.truncate_model import with_num_codes

Recipe = Literal["paper", "best", "original"]
Scale = Literal["smoke", "short", "full"]
Shape = tuple[int, ...]
SMOKE_EXAMPLES = 256
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class BaseRunConfig(Generic[Model]):
    """Settings that every run has, whatever model it trains."""

    recipe: str
    scale: Scale = "full"
    seed: int = 0
    examples: int | None = None
    """Train on the first N examples; null means all."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 is autocast: weights, losses, codebook, posterior and likelihood stay in float32."""
    compile: bool = False
    """Compile the training step with torch.compile."""
    graph: bool = False
    """Capture the training step as a CUDA graph."""
    checkpoint_seconds: float = 30.0
    """Minimum time between two checkpoints inside a stage."""
    sample_grids: int = 5
    """Image grids written to samples/ per stage."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 63:
            raise UserError(f"`seed` must be between 0 and 2^63 - 1, not {self.seed}")
        if self.examples is not None and self.examples < 1:
            raise UserError(f"`examples` must be at least 1, not {self.examples}; null means all")

    @property
    def shape(self) -> Shape:
        """Shape of one example: (channel, height, width) of an image, (channel, time) of audio."""
        raise NotImplementedError


Config = TypeVar("Config", bound=BaseRunConfig[Any])


@dataclass(frozen=True, kw_only=True)
class RunConfig(BaseRunConfig[AnytimeModel]):
    """A run that trains an ordered autoencoder and a prior over its codes; its `config.json`."""

    recipe: Recipe
    model: ModelConfig
    extra_codes: int = 0
    """Further codes, learned like all others and dropped at the end.

    The prior's errors accumulate along the sequence, so that its last codes make samples worse.
    """
    pretrain: AutoencoderStage
    ordered: AutoencoderStage
    prior: PriorStage
    finetune: FinetuneStage | None = None
    """Fine-tune the decoder against a discriminator; null skips the stage, as in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extra_codes < 0:
            raise UserError(f"`extra_codes` must be at least 0, not {self.extra_codes}")
        _ = self.training_model  # refuses a model whose last codes cannot be dropped
        if self.model.autoencoder.is_audio:
            self._check_audio()
        else:
            self._check_images()

    def _check_audio(self) -> None:
        for name in ("conditional_discriminator", "global_head"):
            if self.finetune is not None and getattr(self.finetune, name):
                raise UserError(f"`finetune.{name}` is for images, and this model makes audio; set it to false")

    def _check_images(self) -> None:
        for name in ("pretrain", "ordered", "finetune"):
            if (stage := getattr(self, name)) is not None and stage.spectral_weight:
                raise UserError(f"`{name}.spectral_weight` is for audio, and this model makes images; set it to 0")
        for name in ("prior", "finetune"):
            if (stage := getattr(self, name)) is not None and stage.augmentations > NUM_AUGMENTATIONS:
                raise UserError(f"`{name}.augmentations` is at most {NUM_AUGMENTATIONS} for images, not {stage.augmentations}")

    @property
    def shape(self) -> Shape:
        """Shape of one example."""
        return self.model.autoencoder.shape

    @property
    def training_model(self) -> ModelConfig:
        """The model during training, with its extra codes."""
        return with_num_codes(self.model, self.model.autoencoder.length + self.extra_codes) if self.extra_codes else self.model

    @property
    def epochs(self) -> str:
        """Epochs of each stage in order, such as "200 + 200 + 50"."""
        stages = (self.pretrain, self.ordered, self.prior, self.finetune)
        return " + ".join(str(stage.epochs) for stage in stages if stage is not None)


def image_shape(shape: Shape, feature: str) -> tuple[int, int, int]:
    """Return the shape of an image; refuse audio, which `feature` does not support."""
    if len(shape) != 3:
        raise UserError(f"{feature} is for images, not for audio")
    channels, height, width = shape
    return channels, height, width
