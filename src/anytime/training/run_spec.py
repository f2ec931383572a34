"""What a run trains: its folder, loop and checkpoints know nothing else about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor, nn

from anytime.core import process_group, random
from anytime.core.config import from_dict
from anytime.data.loader import Loader, to_float, version, views
from anytime.data.recordings import Recordings
from anytime.metrics import code_stats
from anytime.model import AnytimeModel, load
from anytime.recipes.presets import RunConfig
from anytime.sampling.warmth import Warmth, write_warmth
from anytime.training import discriminators, sample_grids
from anytime.training.stages import TuneStage
from anytime.training.tasks.autoencoder import AutoencoderTask, PriorTask, Task
from anytime.training.tasks.finetune import Change, Examples, TuneTask
from anytime.training.truncate_model import shortened

FIRST = 64
"""Examples whose latents a codebook may begin with."""
Model = TypeVar("Model", bound=nn.Module)


@runtime_checkable
class Plan(Protocol[Model]):
    """The stages of a run and the model that goes through them."""

    stages: tuple[str, ...]
    model: Model

    def kept(self, stage: str) -> nn.Module:
        """What is kept at the end of a stage that is not the last, for runs that begin alike."""

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        """The business of a stage."""

    def finished(self) -> Model:
        """The model as it is wanted, when all stages are done; what a stage needed alone is gone."""

    def examined(self, stage: str) -> dict[str, Any] | None:
        """What the end of a stage has made of the order of the codes; None where it decides nothing, or there are no codes."""

    def picture(self, path: Path, stage: str) -> None:
        """Show what the model has learned."""

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> Model: ...


class CodesPlan:
    """An autoencoder with codes, a prior over them (Section 3), and where the recipe has it a decoder tuned to both."""

    def __init__(
        self,
        config: RunConfig,
        train: UInt8[Tensor, "n ..."] | Int16[Tensor, "n ..."] | Recordings,
        validation: UInt8[Tensor, "m ..."] | Int16[Tensor, "m ..."],
        device: torch.device,
    ) -> None:
        self.config, self.device = config, device
        self.train, self.validation = train, validation
        self.stages = tuple(name for name in ("pretrain", "ordered", "prior", "tune") if getattr(config, name) is not None)
        self.model = AnytimeModel(config.learning).to(device)
        if config.model.autoencoder.quantizer.start == "latents":
            self._begin()

    @torch.no_grad()
    def _begin(self) -> None:
        """Put the codebook onto latents of a few examples, which are the same on every rank."""
        autoencoder, seed = self.model.autoencoder.eval(), random.derive(self.config.seed, "codebook")
        x = Loader(self.train, FIRST, seed).batch_at(0).to(self.device)
        autoencoder.quantizer.begin(autoencoder.latents(to_float(x)), seed)

    def kept(self, stage: str) -> nn.Module:
        return self.model if stage == "prior" else self.model.autoencoder

    def task(self, index: int, seed: int, say: Callable[[str], None]) -> Task:
        name, config, autoencoder = self.stages[index], self.config, self.model.autoencoder
        if name in ("pretrain", "ordered"):
            stage = config.pretrain if name == "pretrain" else config.ordered
            return AutoencoderTask(name, stage, autoencoder, self.train, self.validation, seed)
        say(f"encoding {len(self.train):,} examples")
        validation = sample_grids.encoded(autoencoder, self.validation)
        if name == "prior":
            versions = self._versions(config.prior.views, config.prior.speed, seed)
            train = torch.cat([sample_grids.encoded(autoencoder, x) for x in versions])
            return PriorTask(config.prior, self.model.prior, train, validation, seed)
        assert config.tune is not None
        x = torch.cat(list(self._versions(config.tune.views, config.tune.speed, seed)))
        examples = Examples(x, sample_grids.encoded(autoencoder, x)), Examples(self.validation, validation)
        return TuneTask(config.tune, autoencoder, *self._judge(config.tune, seed), *examples, seed, self._bank(seed, say))

    def _bank(self, seed: int, say: Callable[[str], None]) -> Tensor | None:
        """Codes that the prior draws, for a decoder that is to make something of them."""
        stage = self.config.tune
        assert stage is not None
        if not stage.drawn:
            return None
        say(f"drawing {stage.bank:,} samples")
        drawn = self.model.sample(stage.bank, seed=random.derive(seed, "bank"), temperature=stage.drawn_temperature)
        return drawn.codes.to(self.device, torch.int32)

    def _versions(self, count: int, speed: float, seed: int) -> Iterator[Tensor]:
        """The training examples several times over: pictures mirrored and moved, recordings at other places and speeds."""
        if isinstance(self.train, Recordings):
            yield from (views(self.train, seed, number, speed) for number in range(count))
        else:
            yield from (version(self.train, number) for number in range(count))

    def _judge(self, stage: TuneStage, seed: int) -> tuple[nn.Module, Change]:
        """What the decoder is tuned against, and how all that it sees is changed."""
        shape = self.config.shape
        with torch.random.fork_rng():
            torch.manual_seed(random.derive(seed, "judge"))
            if self.model.is_sound:
                return discriminators.SoundJudge(stage.width), discriminators.unmoved
            judge = discriminators.PictureJudge(
                stage.width, shape[0] + discriminators.TOLD * stage.told, shape[1], whole=stage.whole
            )
        return judge, partial(discriminators.moved_pictures, lighter=stage.lighter, cut_out=stage.cut_out)

    def finished(self) -> AnytimeModel:
        if self.model.warmth is None and process_group.is_main():  # the prior is from before an interruption, or another run's
            self.examined("prior")
        if self.config.spare:
            self.model = shortened(self.model, self.config.model.autoencoder.length)
        return self.model.eval()

    def examined(self, stage: str) -> dict[str, Any] | None:
        if stage == code_stats.FINISHED and not self.config.spare:  # it is what the stages have told of
            return None
        found = code_stats.examine(stage, self.model, self.validation)
        if stage == "prior":
            self.model.warmth = from_dict(Warmth, found)
        return found

    def picture(self, path: Path, stage: str) -> None:
        sample_grids.write_grid(path, self.model, self.validation[:16] if stage != "prior" else None)

    def save(self, folder: Path) -> None:
        self.model.save(folder)

    def load(self, folder: Path) -> AnytimeModel:
        self.model = load(folder, self.device)
        if self.model.warmth is None and process_group.is_main():  # an older version's
            self.examined("prior")
            assert self.model.warmth is not None
            write_warmth(folder, self.model.hash, self.model.warmth)
        return self.model
