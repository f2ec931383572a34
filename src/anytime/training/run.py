"""A training run as a folder: config, environment, metrics, checkpoints, samples, and at the end the model.

The same call again goes on where the last one stopped, however it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from anytime import collective, randomness, storage
from anytime.data import Dataset
from anytime.data.loader import Loader, to_float, views
from anytime.data.recordings import Recordings
from anytime.errors import UserError
from anytime.model import AnytimeModel, load
from anytime.training import checkpoint as checkpoints
from anytime.training import distributed, judges, log, samples
from anytime.training.adversarial import Change, Examples, TuneTask
from anytime.training.folder import Paths, locked, record, shared_stages
from anytime.training.log import Metrics, Reporter, Silent
from anytime.training.loop import Hooks, StageState, run_stage
from anytime.training.pause import NEVER, Pause
from anytime.training.recipes import RunConfig
from anytime.training.step import Compute
from anytime.training.tasks import AutoencoderTask, Numbers, PriorTask, Task

STAGES = ("pretrain", "ordered", "tune", "prior")
"""Of which `tune` is there only where a recipe has it."""
FIRST = 64
"""Examples whose latents a codebook may begin with."""
Part = TypeVar("Part", Tensor, Recordings, Tensor | Recordings)


def train(
    config: RunConfig,
    dataset: Dataset,
    folder: Path,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    command: str = "",
    share: Path | None = None,
    pause: Pause = NEVER,
) -> AnytimeModel:
    """Train through all stages, or go on with a run that was interrupted; returns the finished model.

    `share` is another run whose first stages are the same: their results are taken over instead of being computed again.
    When `pause` is due, `Paused` is raised behind a checkpoint, and the same call goes on from it.
    """
    if dataset.shape != config.model.autoencoder.shape:
        raise UserError(f"the data has shape {dataset.shape}, the model takes {config.model.autoencoder.shape}")
    if share is not None and not Paths(folder).config.exists():  # refused before the folder is bound to this config
        shared_stages(share, config)
    with distributed.process_group(device or torch.device("cpu")) as own:
        if pause is not NEVER and collective.ranks() > 1:
            raise ValueError("a run of several ranks cannot pause: they would not stop at the same step")
        reporter = reporter if reporter is not None and distributed.is_main() else Silent()
        with locked(folder, config):
            run = Run(config, dataset, folder, own, reporter, command, pause)
            return run.finish(share)


class Run:
    """One process's part in a run. Rank 0 alone writes."""

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        folder: Path,
        device: torch.device,
        reporter: Reporter,
        command: str,
        pause: Pause = NEVER,
    ) -> None:
        self.config, self.paths, self.device, self.reporter = config, Paths(folder), device, reporter
        self.stages = tuple(stage for stage in STAGES if getattr(config, stage) is not None)
        self.pause = pause
        dataset = used(dataset, config)
        self.train, self.validation = resident(dataset.train, device), resident(dataset.validation, device)
        self.compute = Compute(device, config.precision, config.compile, config.graph)
        self.main = distributed.is_main()
        if self.main:
            record(self.paths.environment, device, dataset, command)
        torch.manual_seed(config.seed)
        self.model = AnytimeModel(config.model).to(device)
        if device.type == "cuda":
            self.model.autoencoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.last_checkpoint = time.monotonic()

    def finish(self, share: Path | None = None) -> AnytimeModel:
        if self.paths.finished:  # the model is whole, and repeating its last steps may change it
            self.reporter.say(f"{self.paths.folder} is finished already; choose another --out to train again")
            return load(self.paths.model, self.device)
        start = self._latest()
        if start is None and share is not None:
            start = self._shared(share)
        if start is None:
            self._begin()
        first = 0 if start is None else self.stages.index(start.position.stage)
        self.done = 0 if start is None else start.position.total_steps - start.position.step
        if start is not None:
            self.model.load_state_dict(start.model)
        if self.main:
            self.metrics = Metrics(self.paths.metrics, 0 if start is None else start.position.metrics_bytes)
        for index in range(first, len(self.stages)):
            self._stage(index, start if index == first else None)
        self.model.eval()
        if self.main:
            self.model.save(self.paths.model)
        return self.model

    def _begin(self) -> None:
        """Give the codebook its start, from a few examples that are the same on every rank."""
        autoencoder, seed = self.model.autoencoder.eval(), randomness.derive(self.config.seed, "codebook")
        if autoencoder.config.quantizer.start == "latents":
            x = to_float(Loader(self.train, FIRST, seed).batch_at(0).to(self.device))
            with torch.no_grad():
                autoencoder.quantizer.begin(autoencoder.latents(x), seed)

    def _latest(self) -> checkpoints.Checkpoint | None:
        """Rank 0 looks first and sets damaged files aside; the others then see what it saw."""
        found = checkpoints.read_latest(self.paths.checkpoints, self.reporter.say) if self.main else None
        distributed.barrier()
        return found if self.main else checkpoints.read_latest(self.paths.checkpoints, self.reporter.say)

    def _shared(self, other: Path) -> checkpoints.Checkpoint:
        """A start behind the stages that another run has done already, with its log of them."""
        stages = self.stages[: shared_stages(other, self.config)]
        results = [storage.read_tensors(Paths(other).after(stage))[0] for stage in stages]
        self.model.autoencoder.load_state_dict(results[-1])
        lines = [line for line in log.read(Paths(other).metrics) if line["stage"] in stages]
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        if self.main:
            storage.write_whole(self.paths.metrics, content)
            for stage, result in zip(stages, results, strict=True):
                storage.write_tensors(self.paths.after(stage), result)
        done = sum(max(line["step"] for line in lines if line["stage"] == stage) for stage in stages)
        position = checkpoints.Position(self.stages[len(stages)], 0, done, len(content), None)
        return checkpoints.Checkpoint(position, self.model.state_dict(), {}, {}, torch.zeros(0))

    def _stage(self, index: int, start: checkpoints.Checkpoint | None) -> None:
        name = self.stages[index]
        seed = randomness.derive(self.config.seed, name)
        task = self._task(name, seed)
        state = StageState()
        if start is not None:
            at = start.position
            state = StageState(at.step, at.best_loss, start.best, start.optimizer, start.others, start.running)
        steps = task.epochs * task.steps_per_epoch
        self.reporter.stage(task.name, state.step, steps)
        hooks = Hooks(
            progress=self.reporter.progress,
            epoch=lambda *report: self._epoch(task, *report),
            checkpoint_due=lambda: self.main and time.monotonic() - self.last_checkpoint >= self.config.checkpoint_seconds,
            checkpoint=lambda state: self._save(task.name, state),
            pause=self.pause,
        )
        run_stage(task, state, self.compute, hooks, seed)
        self.done += steps
        if self.main and index + 1 < len(self.stages):
            storage.write_tensors(self.paths.after(task.name), self.model.autoencoder.state_dict())
            self._save(self.stages[index + 1], StageState())

    def _task(self, name: str, seed: int) -> Task:
        config, autoencoder = self.config, self.model.autoencoder
        if name in ("pretrain", "ordered"):
            stage = config.pretrain if name == "pretrain" else config.ordered
            return AutoencoderTask(name, stage, autoencoder, self.train, self.validation, seed)
        self.reporter.say(f"encoding {len(self.train):,} examples")
        validation = samples.encoded(autoencoder, self.validation)
        if name == "prior":
            versions = self._versions(config.prior.views, config.prior.speed, seed)
            train = torch.cat([samples.encoded(autoencoder, x) for x in versions])
            return PriorTask(config.prior, self.model.prior, train, validation, seed)
        assert config.tune is not None
        x = torch.cat(list(self._versions(config.tune.views, config.tune.speed, seed)))
        examples = Examples(x, samples.encoded(autoencoder, x)), Examples(self.validation, validation)
        return TuneTask(config.tune, autoencoder, *self._judge(config.tune.width, seed), *examples, seed)

    def _versions(self, count: int, speed: float, seed: int) -> Iterator[Tensor]:
        """The training examples; of recordings their crops, several times over at other places and speeds."""
        if isinstance(self.train, Recordings):
            yield from (views(self.train, seed, number, speed) for number in range(count))
        else:
            yield self.train

    def _judge(self, width: int, seed: int) -> tuple[nn.Module, Change]:
        """What the decoder is tuned against, and how all that it sees is changed."""
        shape = self.config.model.autoencoder.shape
        with torch.random.fork_rng():
            torch.manual_seed(randomness.derive(seed, "judge"))
            if self.model.is_sound:
                return judges.SoundJudge(width), judges.unmoved
            return judges.PictureJudge(width, shape[0], shape[1]), judges.moved_pictures

    def _epoch(self, task: Task, epoch: int, step: int, train: Numbers, validation: Numbers, seconds: float) -> None:
        self.reporter.progress(step, train | {f"validation {k}": v for k, v in validation.items()})
        if not self.main:
            return
        self.metrics.epoch(task.name, epoch, step, train, validation, seconds)
        every = max(1, task.epochs // max(1, self.config.sample_grids))
        if self.config.sample_grids and (epoch % every == 0 or epoch == task.epochs):
            path = self.paths.folder / "samples" / f"{task.name}-{epoch:04d}.png"
            samples.write_grid(path, self.model, self.validation[:16] if task.name != "prior" else None)

    def _save(self, stage: str, state: StageState) -> None:
        position = checkpoints.Position(stage, state.step, self.done + state.step, self.metrics.size, state.best_loss)
        parts = state.best, state.optimizer, state.running, state.others
        whole = checkpoints.Checkpoint(position, self.model.state_dict(), *parts)
        checkpoints.write(self.paths.checkpoints, whole)
        self.last_checkpoint = time.monotonic()


def resident(examples: Part, device: torch.device) -> Part:
    """The examples on the device where they fit beside the training, else as they are: batches then travel one by one."""
    if device.type == "cuda" and examples.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return examples
    return examples.to(device)


def used(dataset: Dataset, config: RunConfig) -> Dataset:
    """The part of the data that a run works with."""
    return dataset if config.examples is None else dataset.subset(config.examples, max(64, config.examples // 10))
