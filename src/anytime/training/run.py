"""A training run as a folder: config, environment, metrics, checkpoints, samples, and at the end the model.

The same call again goes on where the last one stopped, however it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from anytime.core import process_group, random, storage
from anytime.core.errors import UserError
from anytime.core.pause import NEVER, Pause
from anytime.data import Dataset
from anytime.data.recordings import Recordings
from anytime.metrics import code_stats
from anytime.model import AnytimeModel
from anytime.recipes.base import Config, Settings
from anytime.recipes.presets import SMOKE_EXAMPLES, RunConfig
from anytime.training import checkpoint as checkpoints
from anytime.training import log
from anytime.training.log import Metrics, Reporter, Silent
from anytime.training.loop import Hooks, StageState, run_stage
from anytime.training.run_dir import Paths, locked, record, shared_stages
from anytime.training.run_spec import CodesPlan, Model, Plan
from anytime.training.step import Compute
from anytime.training.tasks.autoencoder import Numbers, Task

Part = TypeVar("Part", Tensor, Recordings, Tensor | Recordings)
Maker = Callable[[Config, Any, Tensor, torch.device], Plan[Model]]
"""(config, training examples, validation examples, device) -> what to train."""


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
    """Train an autoencoder with codes and its prior, or go on with a run that was interrupted; returns the finished model.

    `share` is another run whose first stages are the same: their results are taken over instead of being computed again.
    When `pause` is due, `Paused` is raised behind a checkpoint, and the same call goes on from it.
    """
    return train_plan(CodesPlan, config, dataset, folder, device, reporter, command, share, pause)


def train_plan(
    maker: Maker[Config, Model],
    config: Config,
    dataset: Dataset,
    folder: Path,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    command: str = "",
    share: Path | None = None,
    pause: Pause = NEVER,
) -> Model:
    """Take whatever a plan trains through all of its stages."""
    if dataset.shape != config.shape:
        raise UserError(f"the data has shape {dataset.shape}, the model takes {config.shape}")
    dataset = used(dataset, config)
    if share is not None and not Paths(folder).config.exists():  # refused before the folder is bound to this config
        shared_stages(share, config)
    with process_group.process_group(device or torch.device("cpu")) as own:
        if pause is not NEVER and process_group.ranks() > 1:
            raise ValueError("a run of several ranks cannot pause: they would not stop at the same step")
        reporter = reporter if reporter is not None and process_group.is_main() else Silent()
        with locked(folder, config):
            if process_group.is_main():
                record(Paths(folder).environment, own, dataset, command)
            torch.manual_seed(config.seed)
            plan = maker(config, resident(dataset.train, own), resident(dataset.validation, own), own)
            return Run(config, plan, folder, own, reporter, pause).finish(share)


class Run(Generic[Model]):
    """One process's part in a run. Rank 0 alone writes."""

    def __init__(
        self,
        config: Settings,
        plan: Plan[Model],
        folder: Path,
        device: torch.device,
        reporter: Reporter,
        pause: Pause = NEVER,
    ) -> None:
        self.config, self.plan, self.paths, self.device, self.reporter = config, plan, Paths(folder), device, reporter
        self.pause = pause
        self.compute = Compute(device, config.precision, config.compile, config.graph)
        self.main = process_group.is_main()
        if device.type == "cuda":
            plan.kept(plan.stages[0]).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.last_checkpoint = time.monotonic()

    def finish(self, share: Path | None = None) -> Model:
        model, stages = self.plan.model, self.plan.stages
        if self.paths.finished:  # the model is whole, and repeating its last steps may change it
            self.reporter.say(f"{self.paths.folder} is finished already; choose another --out to train again")
            return self.plan.load(self.paths.model)
        start = self._latest()
        if start is None and share is not None:
            start = self._shared(share)
        first = 0 if start is None else stages.index(start.position.stage)
        self.done = 0 if start is None else start.position.total_steps - start.position.step
        if start is not None:
            model.load_state_dict(start.model)
        if self.main:
            self.metrics = Metrics(self.paths.metrics, 0 if start is None else start.position.metrics_bytes)
        for index in range(first, len(stages)):
            self._stage(index, start if index == first else None)
        model = self.plan.finished()
        if self.main:
            self._examine(code_stats.FINISHED)
            self.plan.save(self.paths.model)
        return model

    def _latest(self) -> checkpoints.Checkpoint | None:
        """Rank 0 looks first and sets damaged files aside; the others then see what it saw."""
        found = checkpoints.read_latest(self.paths.checkpoints, self.reporter.say) if self.main else None
        process_group.barrier()
        return found if self.main else checkpoints.read_latest(self.paths.checkpoints, self.reporter.say)

    def _shared(self, other: Path) -> checkpoints.Checkpoint:
        """A start behind the stages that another run has done already, with its log of them."""
        stages = self.plan.stages[:-1][: shared_stages(other, self.config)]
        results = [storage.read_tensors(Paths(other).after(stage))[0] for stage in stages]
        self.plan.kept(stages[-1]).load_state_dict(results[-1])
        lines = [line for line in log.read(Paths(other).metrics) if line["stage"] in stages]
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        if self.main:
            storage.write_whole(self.paths.metrics, content)
            code_stats.take_over(self.paths.folder, other, stages)
            for stage, result in zip(stages, results, strict=True):
                storage.write_tensors(self.paths.after(stage), result)
        done = sum(max(line["step"] for line in lines if line["stage"] == stage) for stage in stages)
        position = checkpoints.Position(self.plan.stages[len(stages)], 0, done, len(content), None)
        return checkpoints.Checkpoint(position, self.plan.model.state_dict(), {}, {}, torch.zeros(0))

    def _stage(self, index: int, start: checkpoints.Checkpoint | None) -> None:
        stages = self.plan.stages
        seed = random.derive(self.config.seed, stages[index])
        task = self.plan.task(index, seed, self.reporter.say)
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
        if self.main:
            self._examine(task.name)
        if self.main and index + 1 < len(stages):
            storage.write_tensors(self.paths.after(task.name), self.plan.kept(task.name).state_dict())
            self._save(stages[index + 1], StageState())

    def _examine(self, stage: str) -> None:
        """Write down, and say where it is alarming, what the stage has made of the order of the codes."""
        found = self.plan.examined(stage)
        if found is not None:
            code_stats.write_order(self.paths.folder, stage, found)
            for text in found.get("alarms", []):
                self.reporter.say(f"warning: {text}")

    def _epoch(self, task: Task, epoch: int, step: int, train: Numbers, validation: Numbers, seconds: float) -> None:
        self.reporter.progress(step, train | {f"validation {k}": v for k, v in validation.items()})
        if not self.main:
            return
        self.metrics.epoch(task.name, epoch, step, train, validation, seconds)
        every = max(1, task.epochs // max(1, self.config.sample_grids))
        if self.config.sample_grids and (epoch % every == 0 or epoch == task.epochs):
            self.plan.picture(self.paths.folder / "samples" / f"{task.name}-{epoch:04d}.png", task.name)

    def _save(self, stage: str, state: StageState) -> None:
        position = checkpoints.Position(stage, state.step, self.done + state.step, self.metrics.size, state.best_loss)
        model, parts = self.plan.model.state_dict(), (state.best, state.optimizer, state.running, state.others)
        checkpoints.write(self.paths.checkpoints, checkpoints.Checkpoint(position, model, *parts))
        self.last_checkpoint = time.monotonic()


def resident(examples: Part, device: torch.device) -> Part:
    """The examples on the device where they fit beside the training, else as they are: batches then travel one by one."""
    if device.type == "cuda" and examples.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return examples
    return examples.to(device)


def used(dataset: Dataset, config: Settings) -> Dataset:
    """The part of the data that a run works with; less than was asked for is refused, for smoke's own few it is enough."""
    wanted, there = config.examples, len(dataset.train)
    if wanted is None:
        return dataset
    if wanted > there and not (config.scale == "smoke" and wanted <= SMOKE_EXAMPLES):
        raise UserError(
            f"examples = {wanted:,} is more than the {there:,} of {dataset.name}'s training part; set examples=null for all"
        )
    return dataset.subset(wanted, max(64, wanted // 10))
