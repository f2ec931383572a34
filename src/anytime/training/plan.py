"""What a run trains: its folder, loop and checkpoints know nothing else about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor, nn

from anytime.data.recordings import Recordings
from anytime.model import AnytimeModel, load
from anytime.training import samples
from anytime.training.recipes import RunConfig
from anytime.training.tasks import AutoencoderTask, PriorTask, Task

Model = TypeVar("Model", bound=nn.Module)


@runtime_checkable
class Plan(Protocol[Model]):
    """The stages of a run and the model that goes through them."""

    stages: tuple[str, ...]
    model: Model

    @property
    def shared(self) -> nn.Module:
        """What is kept at the end of every stage but the last, for runs that begin alike."""

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        """The business of a stage."""

    def picture(self, path: Path, stage: str) -> None:
        """Show what the model has learned."""

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> Model: ...


class CodesPlan:
    """An autoencoder with codes, then a prior over them (Section 3): pretrain, ordered, prior."""

    stages: tuple[str, ...] = ("pretrain", "ordered", "prior")

    def __init__(
        self,
        config: RunConfig,
        train: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."] | Recordings,
        validation: UInt8[Tensor, "m ..."] | Int16[Tensor, "m ..."],
        device: torch.device,
    ) -> None:
        self.config, self.device = config, device
        self.train, self.validation = train, validation
        self.model = AnytimeModel(config.model).to(device)

    @property
    def shared(self) -> nn.Module:
        return self.model.autoencoder

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        autoencoder = self.model.autoencoder
        if index < 2:
            stage = (self.config.pretrain, self.config.ordered)[index]
            return AutoencoderTask(self.stages[index], stage, autoencoder, self.train, self.validation, seed)
        say(f"encoding {len(self.train):,} examples")
        train, validation = (samples.encoded(autoencoder, part) for part in (self.train, self.validation))
        return PriorTask(self.config.prior, self.model.prior, train, validation, seed)

    def picture(self, path: Path, stage: str) -> None:
        samples.write_grid(path, self.model, self.validation[:16] if stage != "prior" else None)

    def save(self, folder: Path) -> None:
        self.model.save(folder)

    def load(self, folder: Path) -> AnytimeModel:
        return load(folder, self.device)
