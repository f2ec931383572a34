"""Train a run in its directory: config, environment, metrics, checkpoints, samples, and at the end the model.

The same call again resumes the run, however it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from anytime.core import distributed, random, storage
from anytime.core.config import to_dict
from anytime.core.errors import UserError, out_of_memory
from anytime.core.pause import NEVER, Pause
from anytime.core.progress import Reporter, SilentReporter, default_reporter
from anytime.data import Dataset
from anytime.data.image_shards import ImageShards
from anytime.data.recordings import Recordings
from anytime.metrics import code_stats
from anytime.training import checkpoint as checkpoints
from anytime.training import log as metrics_log
from anytime.training import run_files
from anytime.training.config import SMOKE_EXAMPLES, BaseRunConfig, Model, RunConfig
from anytime.training.log import MetricsLog
from anytime.training.loop import EpochMetrics, Hooks, StageState, run_stage
from anytime.training.run_dir import (
    SHARED_ADVICE,
    RunPaths,
    check_same_run,
    lock_run,
    record_environment,
    reusable_stages,
)
from anytime.training.run_spec import SPECS, RunSpec
from anytime.training.step import Compute
from anytime.training.tasks.task import Task
from anytime.training.tracking import TrackerName, check_tracker, start_tracking

ExamplesT = TypeVar("ExamplesT", Tensor, Tensor | Recordings | ImageShards)


def train(
    config: BaseRunConfig[Model],
    dataset: Dataset,
    out: Path,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    command: str = "",
    reuse: Path | None = None,
    pause: Pause = NEVER,
    log: TrackerName | None = None,
) -> Model:
    """Train the model of a config through all stages in the run directory `out`, or resume them; return the finished model.

    `reuse` names a run whose finished stages with the same settings are copied instead of trained again. When `pause` is
    due, `Paused` is raised after a checkpoint, and the same call resumes from it. `log` is the experiment tracker that
    receives the config and the metrics; by default TensorBoard, if it is installed. In a notebook, progress is shown.
    """
    check_tracker(log)
    if dataset.shape != config.shape:
        raise UserError(f"`dataset` has examples of shape {dataset.shape}, the model takes {config.shape}")
    if isinstance(dataset.train, ImageShards) and not isinstance(config, RunConfig):
        raise UserError("tar shards go with `recipe` paper, best or original; the others read their data into memory")
    dataset = training_subset(dataset, config)
    if reuse is not None and not RunPaths(out).config.exists():  # before the directory is bound to this config
        reusable_stages(reuse, config)
    with distributed.process_group(device or torch.device("cpu")) as rank_device:
        if pause is not NEVER and distributed.world_size() > 1:
            raise ValueError("`pause` does not work with several ranks: they would not stop at the same step")
        reporter = (reporter or default_reporter()) if distributed.is_main() else SilentReporter()
        check_same_run(config, dataset, rank_device)
        with lock_run(out, config):
            if distributed.is_main():
                record_environment(RunPaths(out).environment, rank_device, dataset, command)
            torch.manual_seed(config.seed)
            examples = to_device_if_fits(dataset.train, rank_device), to_device_if_fits(dataset.validation, rank_device)
            spec: RunSpec[Model] = SPECS[type(config)](config, *examples, rank_device)
            return Run(config, spec, out, rank_device, reporter, pause, log).finish(reuse)


class Run(Generic[Model]):
    """One process of a run. Only rank 0 writes."""

    def __init__(
        self,
        config: BaseRunConfig[Model],
        spec: RunSpec[Model],
        run_dir: Path,
        device: torch.device,
        reporter: Reporter,
        pause: Pause = NEVER,
        tracker: TrackerName | None = None,
    ) -> None:
        self.config, self.spec, self.paths, self.device, self.reporter = config, spec, RunPaths(run_dir), device, reporter
        self.pause, self.tracker = pause, tracker
        self.compute = Compute(device, config.precision, config.compile, config.graph)
        self.main = distributed.is_main()
        if device.type == "cuda":
            spec.stage_module(spec.stages[0]).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.last_checkpoint = time.monotonic()

    def finish(self, reuse: Path | None = None) -> Model:
        """Train the stages that are left and save the model; load it if the run is finished."""
        model, stages = self.spec.model, self.spec.stages
        if self.paths.finished:  # repeating its last steps could change the model
            self.reporter.say(f"{self.paths.run_dir} is finished already; choose another output directory to train again")
            if self.main and not self.paths.files.exists():  # killed before they were hashed
                run_files.record_files(self.paths.run_dir)
            return self.spec.load(self.paths.model)
        start = self._latest_checkpoint()
        if start is None and reuse is not None:
            start = self._reuse_stages(reuse)
        if start is not None and start.position.stage not in stages:
            raise UserError(f"{self.paths.checkpoints} has a checkpoint of an unknown stage; remove it")
        first = 0 if start is None else stages.index(start.position.stage)
        self.done = 0 if start is None else start.position.total_steps - start.position.step
        if start is not None:
            with self._fitting():
                model.load_state_dict(start.model)
        with ExitStack() as stack:
            if self.main:
                tracking = start_tracking(self.tracker, self.paths.run_dir, to_dict(self.config), self.reporter.say)
                lines = () if start is None else self._finished_epochs(start.position)
                self.metrics = MetricsLog(self.paths.metrics, lines, tracking and stack.enter_context(tracking))
            for index in range(first, len(stages)):
                self._stage(index, start if index == first else None)
        model = self.spec.finished()
        if self.main:
            self._diagnose(code_stats.FINISHED)
            self.spec.save(self.paths.model)
            run_files.record_files(self.paths.run_dir)
        return model

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Refuse a checkpoint whose tensors are not those of the config."""
        try:
            yield
        except (RuntimeError, ValueError, KeyError) as error:
            if isinstance(error, UserError) or out_of_memory(error):
                raise
            raise UserError(f"a checkpoint in {self.paths.checkpoints} does not fit the run's config; remove it") from None

    def _finished_epochs(self, position: checkpoints.Position) -> list[metrics_log.Line]:
        """Return the intact lines of metrics.jsonl up to a checkpoint."""
        stages, current = self.spec.stages, self.spec.stages.index(position.stage)
        lines = [line for line in metrics_log.read(self.paths.metrics) if line["stage"] in stages]
        return [
            line
            for line in lines
            if (index := stages.index(line["stage"])) < current or (index == current and line["step"] <= position.step)
        ]

    def _latest_checkpoint(self) -> checkpoints.Checkpoint | None:
        """Read the checkpoint on rank 0 first, which renames damaged files; the others then read the same one."""
        found = checkpoints.read_latest(self.paths.checkpoints, self.reporter.say) if self.main else None
        distributed.barrier()
        found = found if self.main else checkpoints.read_latest(self.paths.checkpoints, self.reporter.say)
        sentence = f"the ranks find different checkpoints in {self.paths.run_dir}; {SHARED_ADVICE}"
        distributed.check_same(repr(found and found.position), self.device, sentence)
        return found

    def _reuse_stages(self, other: Path) -> checkpoints.Checkpoint:
        """Copy finished stages of another run with their metrics; return a checkpoint after them."""
        stages = self.spec.stages[:-1][: reusable_stages(other, self.config)]
        results = [storage.read_tensors(RunPaths(other).stage_weights(stage))[0] for stage in stages]
        try:
            self.spec.stage_module(stages[-1]).load_state_dict(results[-1])
        except RuntimeError:
            raise UserError(f"`reuse` {other} has weights that do not fit its config.json; choose another run") from None
        lines = [line for line in metrics_log.read(RunPaths(other).metrics) if line["stage"] in stages]
        if self.main:
            metrics_log.write(self.paths.metrics, lines)
            code_stats.copy_code_stats(self.paths.run_dir, other, stages)
            for stage, result in zip(stages, results, strict=True):
                storage.write_tensors(self.paths.stage_weights(stage), result)
        done = sum(max((line["step"] for line in lines if line["stage"] == stage), default=0) for stage in stages)
        position = checkpoints.Position(self.spec.stages[len(stages)], 0, done, None)
        return checkpoints.Checkpoint(position, self.spec.model.state_dict(), {}, {}, torch.zeros(0))

    def _stage(self, index: int, start: checkpoints.Checkpoint | None) -> None:
        stages = self.spec.stages
        seed = random.derive(self.config.seed, stages[index])
        task = self.spec.task(index, seed, self.reporter.say)
        state = StageState()
        if start is not None:
            at = start.position
            state = StageState(at.step, at.best_loss, start.best, start.optimizer, start.auxiliary, start.running_losses)
        steps = task.epochs * task.steps_per_epoch
        self.reporter.stage(task.name, state.step, steps)
        hooks = Hooks(
            progress=self.reporter.progress,
            epoch=lambda metrics: self._epoch(task, metrics),
            checkpoint_due=lambda: self.main and time.monotonic() - self.last_checkpoint >= self.config.checkpoint_seconds,
            checkpoint=lambda state: self._save(task.name, state),
            last_epoch=lambda: self._keep_last_prior(task),
            pause=self.pause,
        )
        run_stage(task, state, self.compute, hooks, seed)
        self.done += steps
        if self.main:
            self._diagnose(task.name)
        if self.main and index + 1 < len(stages):
            storage.write_tensors(self.paths.stage_weights(task.name), self.spec.stage_module(task.name).state_dict())
            self._save(stages[index + 1], StageState())

    def _keep_last_prior(self, task: Task) -> None:
        if self.main and task.name == "prior":
            storage.write_tensors(self.paths.last_prior, task.module.state_dict())

    def _diagnose(self, stage: str) -> None:
        """Write the code statistics after a stage and report their warnings."""
        found = self.spec.diagnostics(stage)
        if found is not None:
            code_stats.write_code_stats(self.paths.run_dir, stage, found)
            label = "usual at smoke scale" if self.config.scale == "smoke" else "warning"
            for text in found.warnings or []:
                self.reporter.say(f"{label}: {text}")

    def _epoch(self, task: Task, metrics: EpochMetrics) -> None:
        self.reporter.progress(metrics.step, metrics.train | {f"validation {k}": v for k, v in metrics.validation.items()})
        if not self.main:
            return
        self.metrics.append(task.name, metrics)
        epoch, every = metrics.epoch, max(1, task.epochs // max(1, self.config.sample_grids))
        if self.config.sample_grids and (epoch % every == 0 or epoch == task.epochs):
            self.spec.save_grid(self.paths.run_dir / "samples" / f"{task.name}-{epoch:04d}.png", task.name)

    def _save(self, stage: str, state: StageState) -> None:
        self.metrics.sync()  # on disk before the checkpoint that relies on them
        position = checkpoints.Position(stage, state.step, self.done + state.step, state.best_loss)
        model, parts = self.spec.model.state_dict(), (state.best, state.optimizer, state.running_losses, state.auxiliary)
        checkpoints.write(self.paths.checkpoints, checkpoints.Checkpoint(position, model, *parts))
        self.last_checkpoint = time.monotonic()


def to_device_if_fits(examples: ExamplesT, device: torch.device) -> ExamplesT:
    """Move the examples to the device if half its free memory holds them; otherwise batches are moved one by one."""
    if device.type == "cuda" and examples.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return examples
    return examples.to(device)


def training_subset(dataset: Dataset, config: BaseRunConfig[Any]) -> Dataset:
    """Return the examples that a run uses; refuse to use more than there are, except for the few of smoke scale."""
    wanted, there = config.examples, len(dataset.train)
    if wanted is None:
        return dataset
    if wanted > there and not (config.scale == "smoke" and wanted <= SMOKE_EXAMPLES):
        raise UserError(
            f"`examples` {wanted:,} is more than the {there:,} of {dataset.name}'s training part; set examples=null for all"
        )
    return dataset.subset(wanted, max(64, wanted // 10))
