"""The run spec: the stages of a run and the model that they train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, cast

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor, nn

from anytime.core import random
from anytime.data.augment import augment_images, augment_recordings
from anytime.data.image_grid import labelled_rows, write_png
from anytime.data.image_shards import AugmentedShards, ImageShards
from anytime.data.loader import Loader, to_float
from anytime.data.recordings import Recordings
from anytime.metrics import code_stats
from anytime.model import AnytimeModel, load
from anytime.training import discriminators
from anytime.training.config import Model, RunConfig
from anytime.training.sample_grids import code_rows
from anytime.training.stages import FinetuneStage
from anytime.training.tasks.autoencoder import AutoencoderTask
from anytime.training.tasks.finetune import Augmentation, EncodedExamples, FinetuneTask
from anytime.training.tasks.prior import PriorTask
from anytime.training.tasks.task import Task
from anytime.training.truncate_model import truncate_model

INIT_EXAMPLES = 64
"""Examples whose latents initialise a codebook."""
SAMPLE_POOL, SMOKE_SAMPLE_POOL = 50_000, 64
"""Prior samples that fine-tuning chooses from."""
SPECS: dict[type, Any] = {}
"""The run spec of each type of config."""


class RunSpec(Generic[Model]):
    """The stages of a run and the model that they train."""

    stages: tuple[str, ...]
    model: Model

    def __init_subclass__(cls, config: type) -> None:
        SPECS[config] = cls

    def stage_module(self, stage: str) -> nn.Module:
        """Return the module whose weights are stored after a stage, for runs that reuse it."""
        return self.model

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        """Return the task of a stage; `say` reports long work."""
        raise NotImplementedError

    def finished(self) -> Model:
        """Return the finished model after all stages."""
        return self.model.eval()

    def diagnostics(self, stage: str) -> code_stats.CodeStats | None:
        """Return the code statistics after a stage, or None if it does not change them or there are no codes."""
        return None

    def save_grid(self, path: Path, stage: str) -> None:
        """Write an image grid of what the model has learned."""
        raise NotImplementedError

    def save(self, directory: Path) -> None:
        """Save the finished model."""
        cast(Any, self.model).save(directory)

    def load(self, directory: Path) -> Model:
        """Load the finished model."""
        raise NotImplementedError


class VQVAERunSpec(RunSpec[AnytimeModel], config=RunConfig):
    """An ordered autoencoder, a prior over its codes (Section 3), and optionally a fine-tuned decoder."""

    def __init__(
        self,
        config: RunConfig,
        train: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."] | Recordings | ImageShards,
        validation: UInt8[Tensor, "m ..."] | Int16[Tensor, "m ..."],
        device: torch.device,
    ) -> None:
        self.config, self.device = config, device
        self.train, self.validation = train, validation
        self.stages = tuple(name for name in ("pretrain", "ordered", "prior", "finetune") if getattr(config, name) is not None)
        self.model = AnytimeModel(config.training_model).to(device)
        if config.model.autoencoder.quantizer.init == "latents":
            self._init_codebook()

    @torch.no_grad()
    def _init_codebook(self) -> None:
        """Initialise the codebook with latents of a few examples, the same on every rank."""
        autoencoder, seed = self.model.autoencoder.eval(), random.derive(self.config.seed, "codebook")
        x = Loader(self.train, INIT_EXAMPLES, seed).batch_at(0).to(self.device)
        autoencoder.quantizer.init_from_latents(autoencoder.latents(to_float(x)), seed)

    def stage_module(self, stage: str) -> nn.Module:
        """Return the autoencoder, or after the prior stage the whole model."""
        return self.model if stage == "prior" else self.model.autoencoder

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        """Return the task of a stage, with the data encoded where it needs codes."""
        name, config, autoencoder = self.stages[index], self.config, self.model.autoencoder
        if name in ("pretrain", "ordered"):
            stage = config.pretrain if name == "pretrain" else config.ordered
            return AutoencoderTask(name, stage, autoencoder, self.train, self.validation, seed)
        say(f"encoding {len(self.train):,} examples")
        validation = code_stats.encode_dataset(autoencoder, self.validation)
        if name == "prior":
            augmented = self._augmented(config.prior.augmentations, config.prior.speed_perturb, seed)
            train = torch.cat([code_stats.encode_dataset(autoencoder, x) for x in augmented])
            return PriorTask(config.prior, self.model.prior, train, validation, seed)
        assert config.finetune is not None
        examples = self._encoded(config.finetune, seed), EncodedExamples(self.validation, validation)
        discriminator, augment = self._discriminator(config.finetune, seed)
        pool = self._sample_pool(seed, say)
        return FinetuneTask(config.finetune, autoencoder, discriminator, augment, *examples, seed, pool)

    def _encoded(self, stage: FinetuneStage, seed: int) -> EncodedExamples:
        """Return the augmented training examples with their codes; those of shards stay there."""
        augmented, autoencoder = self._augmented(stage.augmentations, stage.speed_perturb, seed), self.model.autoencoder
        if isinstance(self.train, ImageShards):
            codes = torch.cat([code_stats.encode_dataset(autoencoder, part) for part in augmented])
            return EncodedExamples(AugmentedShards(self.train, stage.augmentations), codes)
        x = torch.cat(list(augmented))
        return EncodedExamples(x, code_stats.encode_dataset(autoencoder, x))

    def _sample_pool(self, seed: int, say: Callable[[str], None]) -> Tensor | None:
        """Sample codes from the prior, for the decoder to be fine-tuned on."""
        stage = self.config.finetune
        assert stage is not None
        if not stage.prior_samples:
            return None
        size = SMOKE_SAMPLE_POOL if self.config.scale == "smoke" else SAMPLE_POOL
        say(f"sampling {size:,} code sequences from the prior")
        samples = self.model.sample(size, seed=random.derive(seed, "sample pool"), temperature=stage.prior_temperature)
        return samples.codes.to(self.device, torch.int32)

    def _augmented(self, count: int, speed_perturb: float, seed: int) -> Iterator[Tensor]:
        """Yield the training examples `count` times, each time with another augmentation; those of shards in chunks."""
        if isinstance(self.train, Recordings):
            yield from (augment_recordings(self.train, seed, number, speed_perturb) for number in range(count))
        elif isinstance(self.train, ImageShards):
            yield from AugmentedShards(self.train, count).chunks()
        else:
            yield from (augment_images(self.train, number) for number in range(count))

    def _discriminator(self, stage: FinetuneStage, seed: int) -> tuple[nn.Module, Augmentation]:
        """Return the discriminator and the augmentation of its inputs."""
        shape = self.config.shape
        with torch.random.fork_rng():
            torch.manual_seed(random.derive(seed, "discriminator"))
            if self.model.is_audio:
                return discriminators.AudioDiscriminator(stage.width), discriminators.no_augmentation
            discriminator = discriminators.ImageDiscriminator(
                stage.width,
                shape[0] + discriminators.CONDITION_CHANNELS * stage.conditional_discriminator,
                shape[1],
                global_head=stage.global_head,
            )
        return discriminator, discriminators.augment_for_discriminator

    def finished(self) -> AnytimeModel:
        """Return the model without its extra codes."""
        if self.config.extra_codes:
            self.model = truncate_model(self.model, self.config.model.autoencoder.length)
        return self.model.eval()

    def diagnostics(self, stage: str) -> code_stats.CodeStats | None:
        """Return the code statistics after a stage; the finished model has its own only if extra codes were dropped."""
        if stage == code_stats.FINISHED and not self.config.extra_codes:
            return None
        return code_stats.diagnose(stage, self.model, self.validation)

    def save_grid(self, path: Path, stage: str) -> None:
        """Write reconstructions, or samples in the prior stage."""
        if stage == "prior":
            rows = code_rows(self.model, self.model.sample(16, seed=0).codes)
        else:
            x = to_float(self.validation[:16])
            rows = [("data", x.cpu()), *code_rows(self.model, self.model.encode(x))]
        write_png(path, labelled_rows(rows))

    def load(self, directory: Path) -> AnytimeModel:
        """Load the finished model."""
        self.model = load(directory, self.device)
        return self.model
