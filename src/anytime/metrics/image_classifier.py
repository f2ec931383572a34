"""A small classifier of real pictures, which judges samples: are they of some class beyond doubt, of all classes alike?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from anytime.core import random, storage
from anytime.core.errors import UserError
from anytime.core.progress import Reporter
from anytime.data import Dataset
from anytime.data.download import cache_dir
from anytime.data.labels import NUM_CLASSES, ImageLabels
from anytime.data.loader import Loader, to_float
from anytime.training.config import image_shape
from anytime.training.loop import Hooks, StageState, run_stage
from anytime.training.step import Compute
from anytime.training.tasks.task import Metrics, optimizer_options

CONFIDENT = 0.9
"""Above this probability of one class a picture is recognised."""
MIN_ACCURACY = 0.99
"""Accuracy on the held-out pictures below which its word counts for little."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """Network and training: Adam, its rate falling to nothing in a cosine."""

    width: int = 16
    """Channels of the first convolution; the others have twice as many."""
    features: int = 128
    """Numbers that a picture is summed up in."""
    dropout: float = 0.3
    epochs: int = 5
    batch: int = 128
    lr: float = 2e-3
    seed: int = 0


class Classifier(nn.Module):
    """Three convolutions on a map that is halved twice, a layer of features, a linear one to the classes."""

    def __init__(self, shape: tuple[int, int, int], config: ClassifierConfig) -> None:
        super().__init__()
        channels, height, width = shape
        first, second = config.width, 2 * config.width
        self.body = nn.Sequential(
            nn.Conv2d(channels, first, 5, 2, 2, bias=False), nn.BatchNorm2d(first), nn.ReLU(),
            nn.Conv2d(first, second, 3, 1, 1, bias=False), nn.BatchNorm2d(second), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(second, second, 3, 1, 1, bias=False), nn.BatchNorm2d(second), nn.ReLU(), nn.Flatten(),
            nn.Linear(second * math.ceil(height / 4) * math.ceil(width / 4), config.features), nn.ReLU(),
        )  # fmt: skip
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.features, NUM_CLASSES)

    def forward(self, x: UInt8[Tensor, "n channel height width"]) -> Float[Tensor, "n 10"]:
        logits: Tensor = self.head(self.dropout(self.body(to_float(x))))
        return logits


class ClassifierTask:
    """Its training as a stage of the one loop."""

    name = "classifier"
    loss_names = ("loss",)
    auxiliary, keeps_last = None, False

    def __init__(
        self, module: Classifier, dataset: Dataset, labels: ImageLabels, config: ClassifierConfig, device: torch.device
    ) -> None:
        self.module, self.objective, self.config, self.device = module, module, config, device
        self.x, self.labels = dataset.images.to(device), labels.train.long().to(device)
        self.validation, self.expected = dataset.validation, labels.validation.long().to(device)
        self.loader = Loader(torch.arange(len(self.x), device=device), config.batch, config.seed)
        self.epochs, self.steps_per_epoch = config.epochs, self.loader.steps_per_epoch

    def optimizer(self) -> torch.optim.Optimizer:
        trained = list(self.module.parameters())
        return torch.optim.Adam(trained, **optimizer_options(trained[0], self.config.lr))

    def lr(self, step: int) -> float:
        return self.config.lr * 0.5 * (1 + math.cos(math.pi * step / (self.epochs * self.steps_per_epoch)))

    def inputs(self, step: int) -> tuple[Tensor, ...]:
        rows = self.loader.batch_at(step)
        return self.x[rows], self.labels[rows]

    def losses(self, objective: nn.Module, *inputs: Tensor) -> Float[Tensor, " losses"]:
        x, labels = inputs
        return F.cross_entropy(objective(x), labels)[None]

    def after_step(self, step: int) -> None:
        return

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Loss and accuracy on the validation part, which chooses the epoch."""
        logits = torch.cat([self.module(part.to(self.device)) for part in self.validation.split(1000)])
        accuracy = (logits.argmax(1) == self.expected).double().mean()
        return {"loss": float(F.cross_entropy(logits, self.expected)), "accuracy": float(accuracy)}


class ClassifierNetwork:
    """A trained classifier as a network of features, by which sets of pictures are compared."""

    name = "classifier"
    distance = "frechet_classifier"
    suffix = "_classifier"
    batch = 1000

    def __init__(self, module: Classifier, device: torch.device) -> None:
        self.module, self.device = module.to(device).eval(), device
        self.digest = storage.digest(module.state_dict())

    @property
    def size(self) -> int:
        return self.module.head.in_features

    @torch.no_grad()
    def __call__(self, x: UInt8[Tensor, "n channel height width"]) -> Float[Tensor, "n features"]:
        return torch.cat([self.module.body(to_float(part.to(self.device))) for part in x.split(self.batch)])

    @torch.no_grad()
    def probabilities(self, features: Float[Tensor, "n features"]) -> Float[Tensor, "n 10"]:
        """The probability of every class, from features."""
        probabilities: Tensor = self.module.head(features.to(self.device)).softmax(1)
        return probabilities

    def accuracy(self, x: UInt8[Tensor, "n channel height width"], labels: UInt8[Tensor, " n"]) -> float:
        """The share of pictures whose class it names."""
        found = self.probabilities(self(x)).argmax(1).cpu()
        return float((found == labels.long()).double().mean())


@dataclass(frozen=True, slots=True)
class ConfidentPredictions:
    confident: float  # share of pictures that are of one class with a probability above 0.9
    class_fractions: list[float]  # the classes' shares of those


def confident_predictions(probabilities: Float[Tensor, "n 10"]) -> ConfidentPredictions:
    """How many pictures are of some class beyond doubt, and how these divide among the classes."""
    most, classes = probabilities.max(1)
    counts = torch.bincount(classes[most > CONFIDENT], minlength=NUM_CLASSES).double()
    return ConfidentPredictions(float((most > CONFIDENT).double().mean()), (counts / counts.sum().clamp_min(1)).tolist())


def load_or_train_classifier(
    dataset: Dataset,
    labels: ImageLabels,
    config: ClassifierConfig,
    device: torch.device,
    reporter: Reporter,
    cache: Path | None = None,
) -> ClassifierNetwork:
    """A classifier of these pictures: from the cache, or trained there, a minute on two CPU cores or seconds on a GPU."""
    facts = _facts(dataset, labels, config)
    name = f"{dataset.name}-{storage.digest({'train': labels.train, 'x': dataset.images[::97].clone()})[:12]}.safetensors"
    path = (cache or cache_dir()) / "classifiers" / name
    if (tensors := _load_cached(path, facts)) is not None:
        with torch.random.fork_rng(devices=[]):
            module = Classifier(image_shape(dataset.shape, "--classifier"), config)
        module.load_state_dict(tensors)
    else:
        module = _train(dataset, labels, config, device, reporter)
        try:
            storage.write_tensors(path, module.state_dict(), facts)
        except UserError as error:  # costs time at the next start, nothing else
            reporter.say(f"going on without keeping the classifier: {error}")
    return ClassifierNetwork(module, device)


def _load_cached(path: Path, facts: dict[str, Any]) -> dict[str, Tensor] | None:
    """The weights of a classifier that was trained on just this before."""
    if not path.is_file():
        return None
    try:
        tensors, there, _ = storage.read_tensors(path)
    except storage.DamagedFileError:  # it can be made again
        return None
    return tensors if there == facts else None


def _facts(dataset: Dataset, labels: ImageLabels, config: ClassifierConfig) -> dict[str, Any]:
    parts = {"x": dataset.images, "validation": dataset.validation, "labels": labels.train}
    return {"kind": "classifier 1", "config": asdict(config), "data": storage.digest(parts)}


def _train(
    dataset: Dataset, labels: ImageLabels, config: ClassifierConfig, device: torch.device, reporter: Reporter
) -> Classifier:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        module = Classifier(image_shape(dataset.shape, "--classifier"), config).to(device)
        task = ClassifierTask(module, dataset, labels, config, device)
        reporter.stage(task.name, 0, task.epochs * task.steps_per_epoch)
        hooks = Hooks(
            progress=reporter.progress,
            epoch=lambda epoch: reporter.progress(epoch.step, epoch.validation),
            checkpoint_due=lambda: False,
            checkpoint=lambda state: None,
        )
        run_stage(task, StageState(), Compute(device, graph=True), hooks, random.derive(config.seed, task.name))
    return module.eval()
