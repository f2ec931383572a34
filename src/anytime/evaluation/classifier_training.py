"""Training of the classifier (`metrics.classifier`) as a task of the training loop, with a cache of trained classifiers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor, nn

from anytime.core import random, storage
from anytime.core.errors import UserError
from anytime.core.file_lock import hold_write_lock
from anytime.core.progress import Reporter, SilentReporter
from anytime.data import Dataset
from anytime.data.dataset import Examples, Labels
from anytime.data.download import cache_dir
from anytime.data.loader import Loader, to_float, to_int16
from anytime.data.recordings import Recordings
from anytime.evaluation.audio_augment import TRANSFORMS, apply_transforms, augment_digits, augment_transforms
from anytime.metrics.classifier import (
    AUDIO_CONFIG,
    AudioFeatures,
    Classifier,
    ClassifierConfig,
    ClassifierFeatures,
    ClassifierReport,
    to_maps,
)
from anytime.metrics.feature_stats import facts_key
from anytime.training.loop import Hooks, StageState, run_stage
from anytime.training.step import Compute
from anytime.training.tasks.task import Task

FORMAT = "classifier 2"
MIN_ACCURACY = 0.99
"""An image classifier with a lower held-out accuracy is reported with a warning."""
MIN_DIGIT_ACCURACY = 0.97
"""The same for a classifier of spoken digits, on speakers that it was not trained on."""

Augment = Callable[[Tensor, Tensor, int, torch.Generator], tuple[Tensor, Tensor]]
"""Stored examples, labels, negative class, generator -> what the network sees, labels."""


@dataclass(frozen=True, slots=True)
class LabelledExamples:
    """Stored examples with their classes."""

    x: Examples
    labels: Integer[Tensor, " n"]


@dataclass(frozen=True, slots=True)
class ClassifierData:
    """What a classifier is trained and measured on."""

    name: str
    train: LabelledExamples
    validation: LabelledExamples
    held_out: LabelledExamples
    augment: Augment | None = None

    @property
    def digest(self) -> str:
        """Identifies the examples and labels."""
        parts = (self.train, self.validation, self.held_out)
        tensors = [{f"{index}/x": part.x, f"{index}/labels": part.labels} for index, part in enumerate(parts)]
        return storage.digest(tensors[0] | tensors[1] | tensors[2])


class ClassifierTask(Task):
    """The training of a classifier as a stage of the training loop; the last epoch is kept, as lr decays to zero."""

    name = "classifier"
    loss_names = ("loss",)
    keeps_last = True
    module: Classifier

    def __init__(self, classifier: Classifier, data: ClassifierData, device: torch.device) -> None:
        self.module = self.objective = classifier
        self.config, self.data, self.device = classifier.config, data, device
        self.x, self.labels = data.train.x.to(device), data.train.labels.long().to(device)
        self.loader = Loader(torch.arange(len(self.x), device=device), self.config.batch, self.config.seed)
        self.epochs, self.steps_per_epoch = self.config.epochs, self.loader.steps_per_epoch

    def optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW over all weights."""
        return torch.optim.AdamW(self.module.parameters(), self.config.lr)

    def lr(self, step: int) -> float:
        """Return the learning rate of a step: linear warm-up, then cosine decay to zero."""
        steps = self.epochs * self.steps_per_epoch
        warmup = max(1, round(0.1 * steps))
        decay = 0.5 * (1 + math.cos(math.pi * max(0, step - warmup) / max(1, steps - warmup)))
        return self.config.lr * min((step + 1) / warmup, decay)

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        """Return the step's batch, augmented with its own generator."""
        rows = self.loader.batch_at(step)
        x, labels = self.x[rows], self.labels[rows]
        if self.data.augment is None:
            return to_maps(x), labels
        generator = torch.Generator(self.device).manual_seed(random.derive(self.config.seed, "augment", step))
        return self.data.augment(x, labels, self.config.classes, generator)

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        """Return the cross-entropy."""
        maps, labels = inputs
        return F.cross_entropy(objective(maps), labels)[None]

    def validate(self) -> dict[str, float]:
        """Return loss and accuracy on the validation part."""
        return measure(self.module, self.data.validation, self.device)


@torch.no_grad()
def measure(classifier: Classifier, part: LabelledExamples, device: torch.device) -> dict[str, float]:
    """Return the loss and the accuracy on labelled examples."""
    logits = torch.cat([classifier(to_maps(x.to(device))) for x in torch.split(part.x, ClassifierFeatures.batch)])
    labels = part.labels.long().to(device)
    return {"loss": float(F.cross_entropy(logits, labels)), "accuracy": float((logits.argmax(1) == labels).double().mean())}


def load_or_train_image_classifier(
    dataset: Dataset,
    labels: Labels,
    config: ClassifierConfig,
    device: torch.device,
    reporter: Reporter | None = None,
    cache: Path | None = None,
    train: bool = True,
) -> ClassifierFeatures:
    """Return a classifier of the dataset's images: from the cache, or trained in a minute on two CPU cores.

    Without `train` a missing one is refused.
    """
    assert dataset.test is not None
    data = ClassifierData(
        dataset.name,
        LabelledExamples(dataset.images, labels.train),
        LabelledExamples(dataset.validation, labels.validation),
        LabelledExamples(dataset.test, labels.test),
    )
    return ClassifierFeatures(*_load_or_train(data, config, device, reporter, cache, train), device)


def load_or_train_audio_features(
    dataset: Dataset,
    device: torch.device,
    *,
    smoke: bool = False,
    cache: Path | None = None,
    reporter: Reporter | None = None,
    train: bool = True,
) -> AudioFeatures:
    """Return the feature network of an audio dataset: from the cache, or trained now, which takes minutes on a CPU.

    Without `train` a missing one is refused.

    Spoken digits have a digit classifier (`frechet_digits`). Other audio has a classifier of transforms (`frechet_audio`).
    """
    config = replace(AUDIO_CONFIG, widths=(8, 8, 8, 8), features=16, epochs=2) if smoke else AUDIO_CONFIG
    recordings, labels = dataset.train, dataset.labels
    assert isinstance(recordings, Recordings), "audio features are for audio"
    if labels is not None:
        examples = LabelledExamples(recordings.first_crops(), labels.train)
        validation = LabelledExamples(dataset.validation, labels.validation)
        held_out = validation if dataset.test is None else LabelledExamples(dataset.test, labels.test)
        data = ClassifierData(dataset.name, examples, validation, held_out, augment_digits)
    else:
        x, config = recordings.tiles(), replace(config, classes=len(TRANSFORMS))
        examples = LabelledExamples(x, torch.zeros(len(x), dtype=torch.long))  # the transforms are chosen at every step
        validation, held_out = _transformed(dataset.validation), _transformed(dataset.held_out)
        data = ClassifierData(dataset.name, examples, validation, held_out, augment_transforms)
    found = _load_or_train(data, config, device, reporter, cache, train)
    return AudioFeatures(*found, device, spoken_digits=labels is not None)


def _transformed(x: Examples) -> LabelledExamples:
    labels = (random.uniform(0, 3, torch.arange(len(x))) * len(TRANSFORMS)).long()
    parts = zip(*(torch.split(each, ClassifierFeatures.batch) for each in (x, labels)), strict=True)
    return LabelledExamples(to_int16(torch.cat([apply_transforms(to_float(part), chosen) for part, chosen in parts])), labels)


def _load_or_train(
    data: ClassifierData,
    config: ClassifierConfig,
    device: torch.device,
    reporter: Reporter | None,
    cache: Path | None,
    train: bool = True,
) -> tuple[Classifier, ClassifierReport]:
    """Return a trained classifier; the cache is keyed by data, config and format.

    Processes wait for each other. Trained at the same time on a GPU, their classifiers would differ.
    """
    reporter = reporter or SilentReporter()
    facts = {"kind": FORMAT, "config": asdict(config), "data": data.digest}
    path = (cache or cache_dir()) / "classifiers" / f"{data.name}-{facts_key(facts)}.safetensors"
    devices = [device] if device.type == "cuda" else []
    with _held(path), torch.random.fork_rng(devices=devices):  # torch's layers and the loop use it
        classifier = Classifier(tuple(to_maps(data.train.x[:1]).shape[1:]), config)
        if path.is_file():
            try:
                tensors, recorded, _ = storage.read_tensors(path)
                classifier.load_state_dict(tensors)
                return classifier, ClassifierReport(**recorded["report"])
            except (storage.DamagedFileError, RuntimeError, KeyError, TypeError):
                pass  # it can be trained again
        if not train:
            where = f"there is no trained classifier of {data.name} at {path}"
            raise UserError(f"{where}; copy there the one that the measurements were made with")
        report = _train(classifier, data, device, reporter)
        try:
            storage.write_tensors(path, classifier.state_dict(), {**facts, "report": asdict(report)})
        except UserError as error:  # costs time at the next start, nothing else
            reporter.say(f"continuing without saving the classifier: {error}")
    return classifier, report


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the lock of the cache, where files can be written and locked."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            stack.enter_context(hold_write_lock(path))
        yield


def _train(classifier: Classifier, data: ClassifierData, device: torch.device, reporter: Reporter) -> ClassifierReport:
    started, seed = time.perf_counter(), classifier.config.seed
    classifier.init_weights(random.derive(seed, "classifier"))
    task = ClassifierTask(classifier.to(device), data, device)
    reporter.stage(task.name, 0, task.epochs * task.steps_per_epoch)
    hooks = Hooks(
        progress=reporter.progress,
        epoch=lambda epoch: reporter.progress(epoch.step, epoch.validation),
        checkpoint_due=lambda: False,
        checkpoint=lambda state: None,
    )
    run_stage(task, StageState(), Compute(device), hooks, random.derive(seed, task.name))
    seconds = time.perf_counter() - started
    return ClassifierReport(measure(classifier.eval(), data.held_out, device)["accuracy"], len(data.held_out.x), seconds)
